/* The runtime that programs are linked with is the one that FOREGATHER_RUNTIME names, and no other;
 * where it is not set,
 * ../lib/foregather beside the command (a build tree and an installation look alike), then the
 * folder fixed at build time. The compiler is CC, or the one that built the command, or cc; for the
 * cuda target it is nvcc, from NVCC, PATH, its usual place, or where it was at build time. */
#include "tools/command/build.h"

#include "base/file.h"
#include "base/hold.h"
#include "base/str.h"
#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool readable(FgArena *arena, const char *folder, const char *file)
{
    return access(fg_arena_printf(arena, "%s/%s", folder, file), R_OK) == 0;
}

/* The folder that the running command lies in, or NULL. */
static const char *own_folder(FgArena *arena)
{
    for (size_t size = 256; size <= 1 << 16; size *= 2) {
        char *path = fg_arena_alloc(arena, size);
        ssize_t n = readlink("/proc/self/exe", path, size - 1);
        if (n <= 0)
            return NULL;
        if ((size_t)n < size - 1) {
            path[n] = 0;
            char *slash = strrchr(path, '/');
            if (slash)
                *slash = 0;
            return path;
        }
    }
    return NULL;
}

static const char *find_runtime(FgArena *arena, const char **out_error)
{
    const char *given = getenv("FOREGATHER_RUNTIME"), *own = own_folder(arena);
    const char *beside = own ? fg_arena_printf(arena, "%s/../lib/foregather", own) : NULL;
    bool fixed = given && *given; /* then no other: what was asked for is used or refused */
    const char *folders[] = {fixed ? given : beside, fixed ? NULL : FG_RUNTIME_DIR};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (folders[i] && readable(arena, folders[i], "include/fg_rt.h") &&
            readable(arena, folders[i], "libfg_rt_host.a"))
            return folders[i];
    }
    *out_error = fg_arena_printf(
        arena,
        "the runtime is not in %s%s; FOREGATHER_RUNTIME names the folder that holds "
        "libfg_rt_host.a and include/fg_rt.h",
        folders[0] ? folders[0] : FG_RUNTIME_DIR, fixed ? " (FOREGATHER_RUNTIME)" : "");
    return NULL;
}

const char *fg_runtime_include(FgArena *arena, const char **out_error)
{
    const char *runtime = find_runtime(arena, out_error);
    return runtime ? fg_arena_printf(arena, "%s/include", runtime) : NULL;
}

const char *fg_runtime_program(FgArena *arena, const char *name, const char **out_error)
{
    const char *runtime = find_runtime(arena, out_error);
    const char *path = runtime ? fg_arena_printf(arena, "%s/%s", runtime, name) : NULL;
    if (!path || access(path, X_OK) == 0)
        return path;
    *out_error = fg_arena_printf(arena,
                                 "%s is not there: foregather was built where no nvcc was found; "
                                 "install CUDA and configure again",
                                 path);
    return NULL;
}

static void push_words(FgArena *arena, FgStrVec *argv, const char *words)
{
    for (;;) {
        words += strspn(words, " \t");
        size_t n = strcspn(words, " \t");
        if (n == 0)
            return;
        fg_vec_push(arena, argv, fg_arena_strndup(arena, words, n));
        words += n;
    }
}

static void push_compiler(FgArena *arena, FgStrVec *argv)
{
    const char *cc = getenv("CC");
    uint32_t before = argv->len;
    if (cc)
        push_words(arena, argv, cc);
    if (argv->len == before)
        fg_vec_push(arena, argv, access(FG_CC, X_OK) == 0 ? FG_CC : "cc");
}

static void push_all(FgArena *arena, FgStrVec *argv, const FgStrVec *more)
{
    for (uint32_t i = 0; i < more->len; i++)
        fg_vec_push(arena, argv, more->data[i]);
}

static FgStrVec host_command(FgArena *arena, const FgBuild *build, const char *runtime,
                             const char *c_path, const FgStrVec *objects, const char *made)
{
    FgStrVec argv = {0};
    push_compiler(arena, &argv);
    push_words(arena, &argv, "-O1 -std=c11");
    if (strstr(build->text, "\nFG_INLINE ")) /* loops of its own, with the runtime's flags */
        push_words(arena, &argv, "-O3 -ffp-contract=off -fno-math-errno -fno-trapping-math");
    if (build->shared)
        push_words(arena, &argv, "-shared -fPIC");
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-I%s/include", runtime));
    fg_vec_push(arena, &argv, "-o");
    fg_vec_push(arena, &argv, made);
    fg_vec_push(arena, &argv, c_path);
    push_all(arena, &argv, objects);
    if (!build->shared) {
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "%s/libfg_trainer.a", runtime));
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "%s/libfg_rt_host.a", runtime));
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "%s/libfg_launch.a", runtime));
        push_words(arena, &argv, FG_LINK_FLAGS);
    }
    fg_vec_push(arena, &argv, NULL);
    return argv;
}

/* ---- the cuda target ---- */

static bool in_path(FgArena *arena, const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at;) {
        size_t n = strcspn(at, ":");
        if (access(fg_arena_printf(arena, "%.*s/%s", (int)n, at, name), X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static const char *find_nvcc(FgArena *arena)
{
    static const char *const places[] = {"/usr/local/cuda/bin/nvcc", FG_NVCC};
    const char *given = getenv("NVCC");
    if (given && *given)
        return given;
    if (in_path(arena, "nvcc"))
        return "nvcc";
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (*places[i] && access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* Kernels run on later GPUs of the generation that they were compiled for. */
static bool arch_served(const char *arch)
{
    for (const char *at = FG_CUDA_ARCHS; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        long built = strtol(at, NULL, 10), wanted = strtol(arch, NULL, 10);
        if (built / 10 == wanted / 10 && built <= wanted)
            return true;
    }
    return false;
}

static bool cuda_ready(FgArena *arena, const FgBuild *build, const char *runtime,
                       const char **out_error)
{
    const char *why = NULL;
    if (!readable(arena, runtime, "libfg_rt_cuda.a"))
        why =
            fg_arena_printf(arena,
                            "--target cuda: %s has no libfg_rt_cuda.a: foregather was built where "
                            "no nvcc was found; install CUDA and configure again",
                            runtime);
    else if (!find_nvcc(arena))
        why = "--target cuda: there is no nvcc here, neither in PATH nor in /usr/local/cuda/bin; "
              "set NVCC, or give --emit c and build the file elsewhere";
    else if (!arch_served(build->arch))
        why = fg_arena_printf(arena,
                              "--arch %s: this build's kernels are for %s; configure with "
                              "-DFG_CUDA_ARCHITECTURES=%s",
                              build->arch, FG_CUDA_ARCHS, build->arch);
    if (why)
        *out_error = why;
    return !why;
}

/* nvcc takes every file that it is given for C, so libraries come by -l, and objects of custom
 * functions as the linker's. */
static FgStrVec cuda_command(FgArena *arena, const FgBuild *build, const char *runtime,
                             const char *c_path, const FgStrVec *objects, const char *made)
{
    FgStrVec argv = {0};
    fg_vec_push(arena, &argv, find_nvcc(arena));
    push_words(arena, &argv, "-x c -O1 -nodlink -cudart shared");
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-arch=sm_%s", build->arch));
    if (build->shared)
        push_words(arena, &argv, "-shared -Xcompiler -fPIC");
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-I%s/include", runtime));
    fg_vec_push(arena, &argv, "-o");
    fg_vec_push(arena, &argv, made);
    fg_vec_push(arena, &argv, c_path);
    for (uint32_t i = 0; i < objects->len; i++) {
        fg_vec_push(arena, &argv, "-Xlinker");
        fg_vec_push(arena, &argv, objects->data[i]);
    }
    if (!build->shared) {
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "-L%s", runtime));
        push_words(arena, &argv, "-lfg_trainer -lfg_rt_cuda -lfg_launch " FG_CUDA_LINK_FLAGS);
    }
    fg_vec_push(arena, &argv, NULL);
    return argv;
}

/* ---- custom functions ---- */

/* One source file to one object. On the host its products are not contracted, as the runtime's are
 * not: the same source gives the same bits. */
static FgStrVec object_command(FgArena *arena, const FgBuild *build, const char *runtime,
                               const char *source, const char *beside, const char *object)
{
    FgStrVec argv = {0};
    if (build->cuda) {
        fg_vec_push(arena, &argv, find_nvcc(arena));
        push_words(arena, &argv, "-x cu -O2 -Xcompiler -fPIC -cudart shared");
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "-arch=sm_%s", build->arch));
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "-I%s", beside));
    } else {
        push_compiler(arena, &argv);
        push_words(arena, &argv, "-O2 -std=c11 -ffp-contract=off -fPIC");
    }
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-I%s/include", runtime));
    push_words(arena, &argv, "-c -o");
    fg_vec_push(arena, &argv, object);
    fg_vec_push(arena, &argv, *source == '-' ? fg_arena_printf(arena, "./%s", source) : source);
    fg_vec_push(arena, &argv, NULL);
    return argv;
}

static bool run_compiler(FgArena *arena, const FgStrVec *argv, const char **out_error)
{
    const char *said = "";
    int status = fg_run(arena, argv->data, &said);
    if (status < 0)
        *out_error = fg_arena_printf(arena, "%s did not start: %s", argv->data[0], said);
    else if (status > 0)
        *out_error =
            fg_arena_printf(arena, "%s failed with status %d\n%s", argv->data[0], status, said);
    return status == 0;
}

/* nvcc must not see what the user calls a file or its folder: a copy of the source, and a link to
 * where it lies for what it includes. */
static bool rename_source(FgArena *arena, const char *folder, uint32_t i, const char *beside,
                          const char **source, const char **out_error)
{
    char *text;
    size_t len;
    const char *copy = fg_arena_printf(arena, "%s/custom-%u.cu", folder, i);
    if (!fg_file_link_folder(arena, *source, beside, out_error) ||
        !fg_file_read(arena, *source, &text, &len, out_error) ||
        !fg_file_write(arena, copy, text, len, out_error))
        return false;
    *source = copy;
    return true;
}

static bool build_objects(FgArena *arena, const FgBuild *build, const char *runtime,
                          const char *folder, FgStrVec *out, const char **out_error)
{
    for (uint32_t i = 0; i < build->sources.len; i++) {
        const char *object = fg_arena_printf(arena, "%s/custom-%u.o", folder, i);
        const char *source = build->sources.data[i];
        const char *beside = fg_arena_printf(arena, "%s/beside-%u", folder, i);
        if (build->cuda && !rename_source(arena, folder, i, beside, &source, out_error))
            return false;
        FgStrVec argv = object_command(arena, build, runtime, source, beside, object);
        if (!run_compiler(arena, &argv, out_error))
            return false;
        fg_vec_push(arena, out, object);
    }
    return true;
}

/* The kernel part of a program's own text, which this compiler alone sees. Products are not
 * contracted: a chain rounds where it says so. */
static bool build_kernels(FgArena *arena, const FgBuild *build, const char *runtime,
                          const char *folder, const char *c_path, FgStrVec *out,
                          const char **out_error)
{
    const char *object = fg_arena_printf(arena, "%s/kernels.o", folder);
    FgStrVec argv = {0};
    if (!build->cuda || !strstr(build->text, "\n#else\n"))
        return true;
    fg_vec_push(arena, &argv, find_nvcc(arena));
    push_words(arena, &argv, "-x cu -O3 -std=c++17 -fmad=false -Xcompiler -fPIC -cudart shared");
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-arch=sm_%s", build->arch));
    fg_vec_push(arena, &argv, fg_arena_printf(arena, "-I%s/include", runtime));
    push_words(arena, &argv, "-c -o");
    fg_vec_push(arena, &argv, object);
    fg_vec_push(arena, &argv, c_path);
    fg_vec_push(arena, &argv, NULL);
    fg_vec_push(arena, out, object);
    return run_compiler(arena, &argv, out_error);
}

static bool compile(FgArena *arena, const FgBuild *build, const char *runtime, const char *c_path,
                    const FgStrVec *objects, const char *made, const char **out_error)
{
    FgStrVec argv = build->cuda ? cuda_command(arena, build, runtime, c_path, objects, made)
                                : host_command(arena, build, runtime, c_path, objects, made);
    return run_compiler(arena, &argv, out_error) &&
           fg_file_install(arena, made, build->output, out_error);
}

/* All that the compiler is given lies in a folder that is this user's alone. nvcc runs its parts by
 * a shell: it sees no name that the user has chosen. */
static bool build_in(FgArena *arena, const FgBuild *build, const char *runtime, const char *folder,
                     const char **out_error)
{
    const char *c_path =
        fg_arena_printf(arena, "%s/%s", folder, build->cuda ? "program.cu" : build->name);
    const char *made = fg_arena_printf(arena, "%s/program", folder);
    FgStrVec objects = {0};
    return fg_file_write(arena, c_path, build->text, strlen(build->text), out_error) &&
           build_objects(arena, build, runtime, folder, &objects, out_error) &&
           build_kernels(arena, build, runtime, folder, c_path, &objects, out_error) &&
           compile(arena, build, runtime, c_path, &objects, made, out_error);
}

/* Requests to end are held back while there is a folder to remove. */
bool fg_build(FgArena *arena, const FgBuild *build, double *out_ms, const char **out_error)
{
    const char *runtime = find_runtime(arena, out_error);
    FgHold hold;
    *out_ms = 0;
    if (!runtime || (build->cuda && !cuda_ready(arena, build, runtime, out_error)))
        return false;
    double start = now_ms();
    fg_hold_begin(&hold);
    const char *folder = fg_temp_dir(arena, out_error);
    bool ok = folder && build_in(arena, build, runtime, folder, out_error);
    *out_ms = now_ms() - start;
    if (folder)
        fg_temp_dir_remove(arena, folder);
    fg_hold_end(&hold);
    return ok;
}
