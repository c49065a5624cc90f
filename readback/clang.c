/* Loading libclang: the library that the build found, else the one that the system knows. */
#include "readback/clang.h"

#include "readback/readback.h"

#ifdef FG_LIBCLANG

#include <dlfcn.h>
#include <string.h>

bool fg_clang_load(FgArena *arena, FgClang *out, const char **out_why)
{
    static const char *const names[] = {FG_LIBCLANG, "libclang-19.so.1"};
    *out = (FgClang){0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !out->library; i++)
        out->library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    if (!out->library) {
        *out_why = fg_arena_printf(arena, "libclang 19 cannot be loaded: %s", dlerror());
        return false;
    }
    const struct {
        const char *name;
        void *into;
    } functions[] = {
#define X(name) {"clang_" #name, &out->name},
        FG_CLANG_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(out->library, functions[i].name);
        if (!symbol) {
            *out_why = fg_arena_printf(arena, "libclang lacks %s", functions[i].name);
            fg_clang_unload(out);
            return false;
        }
        memcpy(functions[i].into, &symbol, sizeof symbol);
    }
    return true;
}

/* The library stays mapped: it keeps threads' data, and the process ends soon. */
void fg_clang_unload(FgClang *clang)
{
    clang->library = NULL;
}

bool fg_readback_available(FgArena *arena, const char **out_why)
{
    FgClang clang;
    return fg_clang_load(arena, &clang, out_why);
}

#else

bool fg_readback_available(FgArena *arena, const char **out_why)
{
    *out_why = fg_arena_strdup(arena, "this foregather was built without libclang; install "
                                      "libclang-19-dev, configure and build again");
    return false;
}

#endif
