/* The count is atomic: ranks that are threads of one process come here side by side. */
#include "runtime/launch/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const NAMES[FG_N_FAULT_KINDS] = {"alloc",  "collective", "copy",
                                                    "launch", "read",       "write"};

const char *fg_fault_name(FgFaultKind kind)
{
    return NAMES[kind];
}

/* A whole number and what ends it; *at is left behind that. */
static bool number(const char **at, char end, uint64_t *out)
{
    char *rest;
    errno = 0;
    *out = strtoull(*at, &rest, 10);
    if (**at < '0' || **at > '9' || errno || *rest != end)
        return false;
    *at = rest + (end != 0);
    return true;
}

bool fg_fault_parse(FgFault *out_fault, const char *text)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    int kind = 0;
    while (kind < FG_N_FAULT_KINDS &&
           (strlen(NAMES[kind]) != length || memcmp(NAMES[kind], text, length) != 0))
        kind++;
    if (kind == FG_N_FAULT_KINDS)
        return false;
    const char *at = colon + 1;
    uint64_t n = 0, rank = 0;
    if (!number(&at, 0, &n) &&
        !(number(&at, ':', &n) && number(&at, 0, &rank) && rank < UINT32_MAX))
        return false;
    out_fault->kind = (FgFaultKind)kind;
    out_fault->n = n;
    out_fault->rank = (uint32_t)rank;
    atomic_init(&out_fault->seen, 0);
    return true;
}

bool fg_fault_hits(FgFault *fault, FgFaultKind kind, uint32_t rank)
{
    return fault && fault->kind == kind && fault->rank == rank &&
           atomic_fetch_add(&fault->seen, 1) + 1 == fault->n;
}
