/* Faults that a test asks for: the n-th event of a kind fails on one rank.
 *
 * A fault is one object of the program's main function, handed down in the options of a group and
 * in FgFail; there is none in an ordinary run. The places that can fail ask fg_fault_hits before
 * they do their work, and take the way of the real failure when it says so. */
#ifndef FG_RUNTIME_LAUNCH_FAULT_H
#define FG_RUNTIME_LAUNCH_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum FgFaultKind {
    FG_FAULT_ALLOC,      /* memory of a rank, of its device, a thread, a communicator */
    FG_FAULT_COLLECTIVE, /* a call that ranks make together */
    FG_FAULT_COPY,       /* to, from and in the rank's memory, by the driver */
    FG_FAULT_LAUNCH,     /* any other call of the program; a whole step, where it is one launch */
    FG_FAULT_READ,       /* of a file */
    FG_FAULT_WRITE,      /* of a file: made, written, cut, synced, closed, renamed */
    FG_N_FAULT_KINDS
} FgFaultKind;

typedef struct FgFault {
    FgFaultKind kind;
    uint64_t n; /* which event fails, from 1; 0: none, they are counted alone */
    uint32_t rank;
    atomic_uint_fast64_t seen; /* events of this kind on this rank so far */
} FgFault;

/* "KIND:N" or "KIND:N:RANK", KIND in lower case; without a rank it is 0. */
bool fg_fault_parse(FgFault *out_fault, const char *text);
const char *fg_fault_name(FgFaultKind kind);
/* Counts an event; whether it is the one that fails. NULL: there is no fault. Any thread. */
bool fg_fault_hits(FgFault *fault, FgFaultKind kind, uint32_t rank);

#endif
