/* From flags to a plan. Numerics come from flags alone; the machine's memory and ranks can be
 * overridden. */
#include "tools/command/session.h"

#include "base/file.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "readback/signature.h"
#include "tools/command/build.h"

#include <stdlib.h>
#include <string.h>

void fg_session_flush(FgSession *session)
{
    FgBuf text;
    fg_buf_init(&text, session->arena);
    fg_diags_render(session->diags, &text);
    fputs(fg_buf_text(&text), stderr);
}

FgExit fg_session_fail(FgSession *session, const char *message)
{
    size_t first = strcspn(message, "\n");
    const char *rest = message + first + (message[first] == '\n');
    fg_diag(session->diags, FG_NOWHERE, FG_D_IO, "%.*s", (int)first, message);
    if (*rest)
        fg_diag_note(session->diags, FG_NOWHERE, "it said:\n%s", rest);
    fg_session_flush(session);
    return FG_EXIT_INPUT;
}

/* The dtypes of --precision and --reduce-dtype, in the order of their choices. */
static FgDtype dtype_of(const FgFlags *flags, FgFlagId id)
{
    static const FgDtype dtypes[] = {FG_F32, FG_BF16, FG_F16};
    return dtypes[fg_flags_choice(flags, id)];
}

static FgNumerics numerics_of(const FgFlags *flags)
{
    FgNumerics n = {.compute = dtype_of(flags, FG_FLAG_precision)};
    n.wire =
        flags->values[FG_FLAG_reduce_dtype] ? dtype_of(flags, FG_FLAG_reduce_dtype) : n.compute;
    n.accumulate = fg_flags_count(flags, FG_FLAG_accumulate, 1);
    n.accumulate_in = n.accumulate > 1
                          ? (FgAccumulateIn)fg_flags_choice(flags, FG_FLAG_accumulate_in)
                          : FG_IN_SLICE;
    n.shard = fg_slice_dtype(&n);
    n.clip = fg_flags_number(flags, FG_FLAG_clip, 0);
    n.vocab = (FgVocab)fg_flags_choice(flags, FG_FLAG_vocab);
    n.chunk = fg_flags_count(flags, FG_FLAG_vocab_chunk, 0);
    return n;
}

/* With the headers that custom functions include. */
static bool read_signature(void *user, FgArena *arena, const FgSignatureRequest *request,
                           FgSignature *out, const char **out_error, FgLoc *out_loc)
{
    (void)user;
    *out_loc = FG_NOWHERE;
    const char *include = fg_runtime_include(arena, out_error);
    return include && fg_signature_read(include, arena, request, out, out_error, out_loc);
}

static FgModelOptions model_options(const FgSession *session)
{
    const FgFlags *flags = session->flags;
    FgModelOptions options = {.numerics = session->numerics, .read_signature = read_signature};
    options.decay = (FgDecayMode)fg_flags_choice(flags, FG_FLAG_decay);
    options.batch = fg_flags_count(flags, FG_FLAG_batch, 0);
    options.seq = fg_flags_count(flags, FG_FLAG_seq, 0);
    for (uint32_t i = 0; i < flags->dims.len; i++) {
        const char *text = flags->dims.data[i], *equals = strchr(text, '=');
        FgDimOverride dim = {fg_arena_strndup(session->arena, text, (size_t)(equals - text)),
                             strtoll(equals + 1, NULL, 10)};
        fg_vec_push(session->arena, &options.dims, dim);
    }
    return options;
}

/* Every file that the flags have read. */
static FgStrVec inputs_of(FgArena *arena, const FgFlags *flags)
{
    FgStrVec inputs = {0};
    for (uint32_t i = 0; i < flags->files.len; i++)
        fg_vec_push(arena, &inputs, flags->files.data[i]);
    const char *machine = flags->values[FG_FLAG_machine];
    if (machine && !fg_machine_preset(machine))
        fg_vec_push(arena, &inputs, machine);
    if (flags->values[FG_FLAG_ds_config])
        fg_vec_push(arena, &inputs, flags->values[FG_FLAG_ds_config]);
    return inputs;
}

FgExit fg_check_outputs(FgArena *arena, const FgFlags *flags, const FgOutput *outputs, uint32_t n)
{
    FgStrVec inputs = inputs_of(arena, flags);
    const char *error;
    for (uint32_t i = 0; i < n; i++) {
        const char *path = outputs[i].path;
        for (uint32_t k = 0; k < inputs.len; k++)
            if (fg_file_same(arena, path, inputs.data[k]))
                return fg_usage_error(flags->verb, "%s would be written over the input %s", path,
                                      inputs.data[k]);
        bool standard = strcmp(path, "-") == 0;
        for (uint32_t k = 0; k < i; k++)
            if (fg_file_same(arena, path, outputs[k].path) ||
                (standard && strcmp(outputs[k].path, "-") == 0))
                return fg_usage_error(flags->verb, "%s would be written twice",
                                      standard ? "standard output" : path);
        if (!fg_file_writable(arena, path, outputs[i].plain, &error)) {
            fprintf(stderr, "foregather %s: error: %s\n", fg_verb_name(flags->verb), error);
            return FG_EXIT_INPUT;
        }
    }
    return FG_EXIT_OK;
}

FgExit fg_check_text_outputs(FgArena *arena, const FgFlags *flags, const char *path)
{
    const char *report = flags->values[FG_FLAG_report];
    FgOutput outputs[] = {{path ? path : "-", false}, {report, false}};
    return fg_check_outputs(arena, flags, outputs, report ? 2 : 1);
}

/* A dump where a model is wanted: told in one sentence, not by what its JSON lacks. */
static bool is_dump(FgArena *arena, const char *path)
{
    char *text;
    size_t len;
    const char *error;
    if (strcmp(path, "-") == 0 || fg_file_is_device(path) ||
        !fg_file_read(arena, path, &text, &len, &error))
        return false;
    return strncmp(text, "module ", 7) == 0;
}

FgExit fg_session_open(FgSession *session, FgArena *arena, const FgFlags *flags)
{
    *session = (FgSession){.arena = arena, .flags = flags, .diags = fg_diags_new(arena)};
    if (flags->files.len != 1)
        return fg_usage_error(flags->verb,
                              flags->files.len ? "one model at a time" : "no model given");
    session->source = flags->files.data[0];
    if (is_dump(arena, session->source))
        return fg_usage_error(flags->verb, "%s is a dump, not a model%s", session->source,
                              flags->verb == FG_VERB_DIFF ? "; diff takes two dumps or one model"
                                                          : "; fg-opt reads dumps");
    const char *name = flags->values[FG_FLAG_machine] ? flags->values[FG_FLAG_machine] : "host";
    bool ok = fg_machine_load(arena, session->diags, name, &session->machine);
    if (ok && flags->values[FG_FLAG_ranks])
        fg_machine_set_ranks(arena, &session->machine,
                             (uint32_t)fg_flags_count(flags, FG_FLAG_ranks, 1));
    if (ok && flags->values[FG_FLAG_ds_config])
        ok = fg_session_ds_config(session);
    session->numerics = numerics_of(session->flags);
    if (session->numerics.wire == FG_F16 && !fg_scales_loss(&session->numerics))
        return fg_usage_error(flags->verb, "--reduce-dtype fp16 is for --precision fp16, where a "
                                           "scale keeps gradients within its range");
    FgModelOptions options = model_options(session);
    session->graph = fg_model_load(arena, session->diags, session->source, &options);
    ok = ok && session->graph;
    if (!ok)
        fg_session_flush(session);
    return ok ? FG_EXIT_OK : FG_EXIT_INPUT;
}

static FgZero3 zero3_of(const FgFlags *flags)
{
    FgZero3 z = fg_flags_choice(flags, FG_FLAG_zero3) == 0 ? FG_ZERO3_DEFAULTS : FG_ZERO3_MINIMAL;
    const struct {
        FgFlagId flag;
        int64_t *knob;
    } knobs[] = {{FG_FLAG_prefetch_bucket_size, &z.prefetch_bucket_size},
                 {FG_FLAG_max_live_parameters, &z.max_live_parameters},
                 {FG_FLAG_max_reuse_distance, &z.max_reuse_distance},
                 {FG_FLAG_param_persistence_threshold, &z.param_persistence_threshold},
                 {FG_FLAG_reduce_bucket_size, &z.reduce_bucket_size}};
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        *knobs[i].knob = (int64_t)fg_flags_number(flags, knobs[i].flag, (double)*knobs[i].knob);
    z.by_module = fg_flags_choice(flags, FG_FLAG_zero3_unit) == 1;
    return z;
}

FgCompileOptions fg_session_options(const FgSession *session)
{
    FgCompileOptions options = {.memory_bytes = UINT64_MAX, .zero3 = zero3_of(session->flags)};
    options.schedule = (FgSchedule)fg_flags_choice(session->flags, FG_FLAG_schedule);
    static const FgRecompute recompute[] = {FG_RECOMPUTE_AUTO, FG_RECOMPUTE_NONE, FG_RECOMPUTE_FULL,
                                            FG_RECOMPUTE_SELECTIVE};
    options.recompute = recompute[fg_flags_choice(session->flags, FG_FLAG_recompute)];
    options.reduce = (FgReduceForm)fg_flags_choice(session->flags, FG_FLAG_reduce);
    options.no_fuse = session->flags->values[FG_FLAG_no_fuse] != NULL;
    if (session->flags->values[FG_FLAG_offload])
        fg_flags_offload(session->flags->values[FG_FLAG_offload], &options.offload,
                         &options.offload_auto);
    options.numerics_auto = fg_flags_choice(session->flags, FG_FLAG_numerics) == 1;
    options.fixed_vocab = session->flags->values[FG_FLAG_vocab] != NULL;
    options.fixed_chunk = session->flags->values[FG_FLAG_vocab_chunk] != NULL;
    options.fixed_accumulate_in = session->flags->values[FG_FLAG_accumulate_in] != NULL;
    if (session->flags->values[FG_FLAG_memory])
        fg_parse_bytes(session->flags->values[FG_FLAG_memory], &options.memory_bytes);
    return options;
}

/* The model was whole when it was read: what breaks a rule of the IR behind that, and a schedule of
 * our own search that is refused, are bugs. */
static bool is_bug(const FgDiags *diags)
{
    static const FgDiagId ours[] = {FG_D_NOT_PROVED,  FG_D_BAD_PLAN,   FG_D_NO_PLAN, FG_D_BAD_PASS,
                                    FG_D_WRONG_LEVEL, FG_D_IR_INVALID, FG_D_SHAPE};
    bool any = false;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        any |= fg_diags_has(diags, ours[i]);
    return any;
}

FgExit fg_session_failed(FgSession *session)
{
    bool bug = is_bug(session->diags);
    fg_session_flush(session);
    if (!bug)
        return FG_EXIT_INPUT;
    fprintf(stderr,
            "foregather %s: internal error: the model is right, its schedule is not; this is a bug "
            "in foregather, please report it\n",
            fg_verb_name(session->flags->verb));
    return FG_EXIT_INTERNAL;
}

FgExit fg_session_compile(FgSession *session, const FgCompileOptions *options, FgCompiled *out)
{
    if (options->offload && !fg_machine_host_bytes(&session->machine)) {
        fg_diag(session->diags, FG_NOWHERE, FG_D_BAD_VALUE,
                "machine '%s' offers no host memory to offload to: give it \"host_memory\", "
                "\"stash\" and \"fetch\" in a machine file",
                session->machine.name);
        fg_session_flush(session);
        return FG_EXIT_INPUT;
    }
    if (!fg_compile(session->arena, session->graph, &session->machine, &session->numerics, options,
                    out))
        return fg_session_failed(session);
    return out->fits || options->stop_after ? FG_EXIT_OK : FG_EXIT_DOES_NOT_FIT;
}
