/* What the files of kinds share: the program that is broken, ways to try one fault, and questions
 * about lines. */
#ifndef FG_TESTS_MUTATION_MUTANTS_INTERNAL_H
#define FG_TESTS_MUTATION_MUTANTS_INTERNAL_H

#include "mutants.h"

#define NO_LINE UINT32_MAX

typedef struct Cx {
    const Program *program;
    FgArena *arena; /* of one mutant */
    TryMutant *try;
    void *context;
} Cx;

const Line *line_at(const Cx *cx, uint32_t i);
uint32_t n_lines(const Cx *cx);
const char *text_of(const Cx *cx, uint32_t i);

/* ---- edits: a mutant is begun, some lines get another text, and it is tried ---- */
Mutant begin(const Cx *cx, uint32_t line);
void edit(Mutant *mutant, uint32_t line, const char *text);
void finish(const Cx *cx, const Mutant *mutant); /* tries it, and forgets it */
/* The program with another text for a line. */
void try_edit(const Cx *cx, uint32_t line, const char *text);
/* The line `from` stands after (or before) the line `to` instead. */
void try_move(const Cx *cx, uint32_t from, uint32_t to, bool after);
void try_double(const Cx *cx, uint32_t line);
/* All calls of an entry, one at a time: dropped, or made twice. */
void try_each(const Cx *cx, const char *entry, bool twice);
/* The text of the line with another argument (0 is the context). */
const char *with_arg(const Cx *cx, uint32_t line, uint32_t index, const char *value);
void try_number(const Cx *cx, uint32_t line, uint32_t index, uint64_t value);
/* The same by name, where the call on the line has the argument. */
void try_arg(const Cx *cx, uint32_t line, const char *name, uint64_t value);

/* ---- questions ---- */
bool is_work(const Line *line);
bool same_body(const Cx *cx, uint32_t a, uint32_t b); /* both are calls that one body makes */
/* The nearest work line before (step -1) or after (step 1) in the same body. */
uint32_t next_work(const Cx *cx, uint32_t from, int step, uint64_t stream);
/* The line's record or wait of an event, or NO_LINE. */
uint32_t event_line(const Cx *cx, const char *entry, uint64_t event, uint32_t near, int step);
/* One of the two writes what the other reads or writes. */
bool conflicts(const Line *a, const Line *b);

/* ---- the kinds ---- */
#define KIND(name, function, alone) void function(const Cx *cx);
#include "kinds.def"
#undef KIND

#endif
