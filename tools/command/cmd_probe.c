/* probe: what measures lies outside the command, which knows no device. The machine is measured by
 * fg_probe of the runtime's folder; products by the program that is compiled for them. Either takes
 * this process's place. */
#include "base/file.h"
#include "tools/command/build.h"
#include "tools/command/session.h"

#include <string.h>

static FgExit fail(const char *text)
{
    fprintf(stderr, "foregather probe: error: %s\n", text);
    return FG_EXIT_INPUT;
}

/* Returns only when it cannot be started. */
static FgExit become(FgArena *arena, FgStrVec *argv)
{
    const char *error;
    fg_vec_push(arena, argv, NULL);
    fg_become(arena, argv->data, &error);
    return fail(error);
}

static void push_flag(FgArena *arena, FgStrVec *argv, const FgFlags *flags, FgFlagId id)
{
    if (!flags->values[id])
        return;
    fg_vec_push(arena, argv, fg_flag_name(id));
    fg_vec_push(arena, argv, flags->values[id]);
}

/* The flag that only a compilation has a use for, or FG_N_FLAGS. */
static FgFlagId first_of_a_plan(const FgFlags *flags)
{
    for (int id = 0; id < FG_N_FLAGS; id++)
        if (flags->values[id] && id != FG_FLAG_ranks && id != FG_FLAG_output && id != FG_FLAG_name)
            return (FgFlagId)id;
    return FG_N_FLAGS;
}

static FgExit probe_machine(FgArena *arena, const FgFlags *flags)
{
    const char *error, *output = flags->values[FG_FLAG_output];
    FgOutput file = {output, false};
    FgFlagId plan = first_of_a_plan(flags);
    if (plan != FG_N_FLAGS)
        return fg_usage_error(flags->verb, "%s goes with --for MODEL", fg_flag_name(plan));
    FgExit code = fg_check_outputs(arena, flags, &file, output ? 1 : 0);
    if (code != FG_EXIT_OK)
        return code;
    const char *program = fg_runtime_program(arena, "fg_probe", &error);
    if (!program)
        return fail(error);
    FgStrVec argv = {0};
    fg_vec_push(arena, &argv, program);
    push_flag(arena, &argv, flags, FG_FLAG_ranks);
    push_flag(arena, &argv, flags, FG_FLAG_output);
    push_flag(arena, &argv, flags, FG_FLAG_name);
    return become(arena, &argv);
}

static FgExit probe_products(FgArena *arena, const FgFlags *flags)
{
    const char *program;
    uint32_t ranks;
    FgFlags compile = *flags;
    if (flags->values[FG_FLAG_name])
        return fg_usage_error(flags->verb, "--name does not go with --for");
    if (flags->values[FG_FLAG_target] && strcmp(flags->values[FG_FLAG_target], "cuda") != 0)
        return fg_usage_error(flags->verb, "--for measures on GPUs; --target host has no choices");
    compile.verb = FG_VERB_COMPILE;
    compile.values[FG_FLAG_target] = "cuda";
    compile.values[FG_FLAG_probe_for] = NULL;
    fg_vec_push(arena, &compile.files, flags->values[FG_FLAG_probe_for]);
    FgExit code = fg_compile_program(arena, &compile, &program, &ranks);
    if (code != FG_EXIT_OK)
        return code;
    FgStrVec argv = {0};
    fg_vec_push(arena, &argv,
                strchr(program, '/') ? program : fg_arena_printf(arena, "./%s", program));
    fg_vec_push(arena, &argv, "--tune");
    if (ranks > 1) {
        fg_vec_push(arena, &argv, "--local-ranks");
        fg_vec_push(arena, &argv, fg_arena_printf(arena, "%u", ranks));
    }
    return become(arena, &argv);
}

FgExit fg_cmd_probe(FgArena *arena, const FgFlags *flags)
{
    if (flags->files.len)
        return fg_usage_error(flags->verb, "probe takes no file: '%s' (a model goes with --for)",
                              flags->files.data[0]);
    return flags->values[FG_FLAG_probe_for] ? probe_products(arena, flags)
                                            : probe_machine(arena, flags);
}
