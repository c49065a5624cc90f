/* Names for bytes: which buffer a call of an emitted program means by an address.
 *
 * A program passes addresses alone. Read in issue order, a write begins a buffer and a read means
 * what was written there last; tables name the states, the parameters inside a gathered bucket and
 * inside a gradient buffer. The names are a guess that costs nothing if it is wrong: the checker
 * proves afterwards that every read finds the buffer that it was given here, in every period. */
#ifndef FG_READBACK_NAMES_H
#define FG_READBACK_NAMES_H

#include "passes/check_internal.h"
#include "readback/internal.h"

/* Bytes of a value that a call read last, of those that it is read in. */
typedef struct FgRbPiece {
    uint64_t begin, end;
} FgRbPiece;
#define FG_RB_PIECE_KINDS 4

/* What the names need to know of a buffer beside the trace. */
typedef struct FgRbBuffer {
    FgTraceKind kind; /* of the call that begins it: GATHER, GRAD_BUFFER, else WORK */
    uint32_t bucket;
    bool open;      /* a gradient buffer between its begin and its reduction */
    uint32_t reads; /* of what was written last */
    bool ever;      /* read, at some time */
    uint32_t home;  /* the state that it was fetched from, or FG_NO_ID */
    uint32_t dtype; /* 1 + the FgRtDtype of its elements; 0: nothing has said (types.c) */
    FgRbPiece pieces[FG_RB_PIECE_KINDS];
} FgRbBuffer;

typedef struct FgRbNames {
    FgArena *arena;
    const FgRbSource *source;
    const FgRbTables *tables;
    FgTrace *out;
    FgCheckSpace space; /* bounds alone */
    FgCheckCells cells; /* uint32_t: 1 + buffer */
    FG_VEC(FgRbBuffer) buffers;
    FG_VEC(uint32_t) keyed; /* gathered copies, gradient buffers, their parts, workspaces */
    /* the call being named */
    const FgRbCall *call;
    FgTraceKind kind;
    uint32_t node;               /* its id in the trace */
    uint32_t bucket, from_state; /* from_state: what a fetch reads, or FG_NO_ID */
    uint32_t copied;             /* the dtype of what it read last, as of a buffer */
    const char *func, *from;     /* the body; the node's name */
    bool init;
    bool ok;
} FgRbNames;

/* `bounds`: all addresses at which an access begins or ends, in any order. */
void fg_rb_names_init(FgRbNames *names, uint64_t *bounds, uint32_t n_bounds);
/* The buffer that a read, a write or a release of the call means; FG_NO_ID after an error. */
uint32_t fg_rb_name_read(FgRbNames *names, const FgRbEffect *effect);
uint32_t fg_rb_name_write(FgRbNames *names, const FgRbEffect *effect);
uint32_t fg_rb_name_release(FgRbNames *names, const FgRbEffect *effect);
/* Whether a read of a part of a value is the next piece of one that is read in pieces (pieces.c).
 */
bool fg_rb_piece(FgRbNames *names, uint32_t root, const FgRbEffect *effect);
/* At the end of a body: every value that was read in pieces was read to its end. */
void fg_rb_pieces_end(FgRbNames *names, FgLoc loc);
/* Element types of what a call reads and, before it is put there, writes (types.c). */
void fg_rb_type_read(FgRbNames *names, const FgRbEffect *effect, uint32_t id);
void fg_rb_type_write(FgRbNames *names, const FgRbEffect *effect, uint32_t id);
/* Reports that the call is not safe. */
void fg_rb_unsafe(FgRbNames *names, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
