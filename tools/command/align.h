/* Two schedules aligned line by line: what is equal, what moved and how far, what only one of them
 * has.
 *
 * A line is a node that does work on a device, named by what it does and not by its id, so that
 * schedules of different plans can be compared. Everything lives in the arena. */
#ifndef FG_TOOLS_COMMAND_ALIGN_H
#define FG_TOOLS_COMMAND_ALIGN_H

#include "base/vec.h"
#include "ir/ir.h"

typedef struct FgLine {
    const char *text; /* "gather @layers.3 for forward": unique in its function */
    uint32_t node;
    uint32_t compute; /* nodes of the compute stream before it */
    uint32_t ahead;   /* a gather: nodes of the compute stream between it and its first use */
    bool computes;    /* work of the compute stream */
} FgLine;

typedef FG_VEC(FgLine) FgLines;

typedef enum FgChangeKind {
    FG_CHANGE_EQUAL,   /* `n` lines that stand in both */
    FG_CHANGE_MOVED,   /* stands elsewhere among the equal ones */
    FG_CHANGE_REMOVED, /* only left */
    FG_CHANGE_ADDED    /* only right */
} FgChangeKind;

typedef struct FgChange {
    FgChangeKind kind;
    uint32_t n;
    const FgLine *left, *right; /* NULL where the side has none (EQUAL: the first of the run) */
    int64_t earlier; /* MOVED: by how many nodes of the compute stream right comes earlier */
} FgChange;

typedef FG_VEC(FgChange) FgChanges;

/* "gather @layers.3 for forward", "linear layers.3.q forward": the node at a position. */
const char *fg_node_text(FgArena *arena, const FgModule *module, const FgFunc *func, uint32_t at);
/* Position of the first work that reads what the gather at `at` makes, or the function's length. */
uint32_t fg_first_use(const FgModule *module, const FgFunc *func, uint32_t at);
FgLines fg_schedule_lines(FgArena *arena, const FgModule *module, const FgFunc *func);
/* In the order of the right side; what only the left has stands where it was. The equal lines are
 * a common subsequence with the most work of the compute stream, then the most lines. */
FgChanges fg_align(FgArena *arena, const FgLines *left, const FgLines *right);

#endif
