/* One fault in a program's text: the kinds of fault, and a way to try each at every place. */
#ifndef FG_TESTS_MUTATION_MUTANTS_H
#define FG_TESTS_MUTATION_MUTANTS_H

#include "program.h"

/* A mutant is the program with some lines replaced, and one line moved. */
typedef struct Mutant {
    const Program *program;
    FgArena *arena;
    uint32_t line;        /* where the fault is, for messages */
    uint32_t n_edits;     /* lines with another text; "" drops the line */
    uint32_t edited[4];   /* which */
    const char *texts[4]; /* their new text, may hold several lines */
} Mutant;

/* Called with every mutant of a kind. */
typedef void TryMutant(void *context, const Mutant *mutant);

typedef struct Kind {
    const char *name;
    void (*make)(const Program *program, FgArena *arena, TryMutant *try, void *context);
    bool alone; /* each must be refused without a plan */
} Kind;

extern const Kind mutant_kinds[];
extern const uint32_t n_mutant_kinds;

/* The mutant's text, in its arena. */
const char *mutant_text(const Mutant *mutant, size_t *out_len);

#endif
