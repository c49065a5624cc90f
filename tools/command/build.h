/* From C text to a program: runs the target's compiler (the system's C compiler, or nvcc), without
 * a shell, and puts the result in place whole or not at all. */
#ifndef FG_TOOLS_COMMAND_BUILD_H
#define FG_TOOLS_COMMAND_BUILD_H

#include "base/arena.h"
#include "base/vec.h"

#include <stdbool.h>

typedef struct FgBuild {
    const char *text;   /* the C file */
    const char *name;   /* what the C file is called while it is compiled: "llama.c" */
    const char *output; /* where the result goes */
    bool shared;        /* a shared object without the runtime, for a test runner that brings one */
    bool cuda;          /* for GPUs of generation `arch` ("90"), by nvcc; otherwise for the host */
    const char *arch;
    FgStrVec sources; /* of custom functions: C, or CUDA C++ for GPUs; built and linked with it */
} FgBuild;

/* False with *out_error, arena-owned. *out_ms is the time that the compiler took. */
bool fg_build(FgArena *arena, const FgBuild *build, double *out_ms, const char **out_error);

/* The folder of the runtime's header; NULL with *out_error, arena-owned. */
const char *fg_runtime_include(FgArena *arena, const char **out_error);

/* A program of the runtime's folder; NULL with *out_error, arena-owned. */
const char *fg_runtime_program(FgArena *arena, const char *name, const char **out_error);

#endif
