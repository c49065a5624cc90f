/* What the files of kinds share: the program that is broken, and ways to try one fault. */
#ifndef FG_TESTS_MUTATION_MUTANTS_INTERNAL_H
#define FG_TESTS_MUTATION_MUTANTS_INTERNAL_H

#include "mutants.h"

typedef struct Cx {
    const Program *program;
    FgArena *arena; /* of one mutant */
    TryMutant *try;
    void *context;
} Cx;

const Line *line_at(const Cx *cx, uint32_t i);
uint32_t n_lines(const Cx *cx);
const char *text_of(const Cx *cx, uint32_t i);
/* The program with another text for a line. */
void try_edit(const Cx *cx, uint32_t line, const char *text);
/* The same, where the call on a line has the argument. */
void try_arg(const Cx *cx, uint32_t line, const char *name, uint64_t value);

/* ---- mutants_tables.c ---- */
void other_operands(const Cx *cx);
void other_function(const Cx *cx);
void change_declaration(const Cx *cx);
void change_table(const Cx *cx);
void change_program(const Cx *cx);

#endif
