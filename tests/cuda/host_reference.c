/* A context of the host runtime around memory that somebody else owns, and its errors caught: what
 * the host's kernels need to run on their own. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/host/cx.h"

FgRtCx *host_reference(const FgRtProgram *program, void *memory, uint64_t bytes, uint32_t rank);
const char *host_reference_error(void);

static FgRtCx reference;
static char message[256];

FgRtCx *host_reference(const FgRtProgram *program, void *memory, uint64_t bytes, uint32_t rank)
{
    memset(&reference, 0, sizeof reference);
    reference.program = program;
    reference.memory = memory;
    reference.bytes = bytes;
    reference.rank = rank;
    message[0] = '\0';
    return &reference;
}

const char *host_reference_error(void)
{
    return message[0] ? message : NULL;
}

void fg_rt_raise(FgRtCx *cx, const char *format, ...)
{
    (void)cx;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
}
