/* Two schedules with their figures, compared: data for diff's text and JSON. */
#ifndef FG_TOOLS_COMMAND_COMPARE_H
#define FG_TOOLS_COMMAND_COMPARE_H

#include "passes/compile.h"
#include "tools/command/align.h"

typedef struct FgSide {
    const char *name; /* "zero3", "compiled", or the dump's file name */
    const char *plan; /* the name of a plan that the search took as it was; NULL otherwise */
    FgModule *module;
    bool scheduled; /* level sched: ledger and sim are there */
    bool too_big;   /* planned although it does not fit the memory offered */
    FgLedger ledger;
    FgSim sim;
    const FgSimNode *run; /* by node id; NULL: not known */
} FgSide;

/* One figure of both sides. */
typedef enum FgFigureKind { FG_FIGURE_US, FG_FIGURE_BYTES, FG_FIGURE_COUNT } FgFigureKind;

typedef struct FgFigure {
    const char *key, *label;
    FgFigureKind kind;
    bool part; /* of the figure before it that is none */
    double left, right;
} FgFigure;

typedef FG_VEC(FgFigure) FgFigures;

/* One function of both sides; a function that only one side has aligns with nothing. */
typedef struct FgFuncDiff {
    const char *name;
    FgLines left, right;
    FgChanges changes;
    bool differs;
} FgFuncDiff;

typedef struct FgComparison {
    FgSide left, right;
    uint64_t budget; /* UINT64_MAX: not known (dumps) */
    FgFigures figures;
    FG_VEC(FgFuncDiff) funcs;
    bool differs;
} FgComparison;

/* Fills figures, funcs and differs from the two sides. */
void fg_compare(FgArena *arena, FgComparison *comparison);
void fg_comparison_text(FgArena *arena, const FgComparison *comparison, FgBuf *out);
void fg_comparison_json(FgArena *arena, const FgComparison *comparison, FgBuf *out);

#endif
