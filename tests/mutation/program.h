/* An emitted program for tests that break it: compiled, emitted, and taken apart into lines with
 * what the read-back knows of each call. */
#ifndef FG_TESTS_MUTATION_PROGRAM_H
#define FG_TESTS_MUTATION_PROGRAM_H

#include "passes/compile.h"
#include "readback/internal.h"

typedef struct Variant {
    const char *title, *model; /* the model under the source folder */
    const char *machine;       /* a preset; NULL: the host */
    FgSchedule schedule;
    uint32_t ranks;
    FgDtype precision;
    double clip;
    int64_t accumulate; /* 0 is 1 */
    FgAccumulateIn accumulate_in;
    FgRecompute recompute;
    uint32_t offload; /* FgOffload */
    FgReduceForm reduce;
    FgVocab vocab;
    int64_t chunk;   /* tokens of a head at a time, or that travel at a time where it is sharded */
    uint32_t sample; /* at most so many mutants of a kind in the suite */
} Variant;

typedef struct Line {
    const char *text; /* without its end */
    size_t len;
    bool is_call;         /* a call of the runtime */
    const FgRbCall *call; /* NULL for other lines */
    FgRbEffectVec effects;
    uint32_t body; /* function of the file that makes the call when the program runs */
} Line;

typedef struct Program {
    FgArena *arena;
    const Variant *variant;
    FgModule *plan;
    const char *text;
    FG_VEC(Line) lines;
    FgRbSource source;
    FgRbTables tables;
} Program;

/* Compiles and emits; false (after a message) when that fails or is not proved. */
bool program_make(FgArena *arena, const Variant *variant, Program *out);

/* What the read-back says of a text: with the plan to compare with, or without (NULL). */
typedef struct Verdict {
    bool ok;
    const char *said; /* in `arena` */
} Verdict;
Verdict program_verdict(FgArena *arena, const char *text, size_t len, const FgModule *plan);

/* ---- questions about a line ---- */
bool line_is(const Line *line, const char *entry);
uint64_t line_arg(const Line *line, const char *name); /* FG_RB_NONE where there is none */
/* The line's call reads (or writes) some byte of [at, at + bytes). */
bool line_reads(const Line *line, uint64_t at, uint64_t bytes);
bool line_writes(const Line *line, uint64_t at, uint64_t bytes);

#endif
