/* The emitted file as a whole: a comment that says what it is, tables, functions, the program.
 *
 * Functions are made first, since they decide the rows of the tables `nodes` and `layouts`. */
#include "codegen/codegen.h"

#include "codegen/chain.h"
#include "codegen/ctext.h"
#include "codegen/custom.h"
#include "codegen/parts.h"

#include <inttypes.h>
#include <string.h>

static const FgFunc *find_func(const FgModule *m, const char *name)
{
    for (uint32_t i = 0; i < m->funcs.len; i++) {
        if (strcmp(m->funcs.data[i].name, name) == 0)
            return &m->funcs.data[i];
    }
    return NULL;
}

static void put_header(const FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    fg_buf_puts(out, "/* ");
    fg_c_comment(out, m->name);
    fg_buf_puts(
        out, ": a training program whose memory and order were planned and proved ahead of time.\n"
             " *\n * Made by foregather ");
    fg_c_comment(out, emit->info->version);
    fg_buf_puts(out, " from ");
    const char *slash = strrchr(emit->info->source, '/');
    fg_c_comment(out, slash ? slash + 1 : emit->info->source);
    fg_buf_printf(out, ": plan %s, %u rank%s, ", m->plan ? m->plan->name : "of its own", m->ranks,
                  m->ranks == 1 ? "" : "s");
    fg_buf_printf(out, "compute %s, gradients %s, %" PRId64 " micro-step%s, ",
                  fg_dtype_name(m->numerics.compute), fg_dtype_name(m->numerics.wire),
                  m->numerics.accumulate, m->numerics.accumulate == 1 ? "" : "s");
    if (m->numerics.clip > 0)
        fg_buf_printf(out, "clip %s.\n", fg_double_text(emit->arena, m->numerics.clip));
    else
        fg_buf_puts(out, "no clipping.\n");
    fg_buf_printf(out, " * Plan fingerprint %016" PRIx64 ".\n *\n", emit->info->fingerprint);
    fg_buf_puts(out, " * One call a node, in issue order. Buffers are byte offsets into a rank's "
                     "one allocation: what always "
                     "lives first,\n * then the arena. Each call is followed by the name of its "
                     "node and the place in the "
                     "model that it comes from. */\n#include \"fg_rt.h\"\n\n");
    if (fg_emit_has_kernels(emit))
        fg_buf_puts(out, "#ifndef __CUDACC__\n\n");
}

/* The bodies in the order in which they run; the field of FgRtProgram that each one fills. */
typedef struct BodyRow {
    const char *field, *func;
    bool always; /* emitted, with a join alone, also when the module has no such function */
} BodyRow;

static const BodyRow bodies[] = {
    {"init", "init", true},    {"prologue", "prologue", true}, {"first", "step", false},
    {"first", "first", false}, {"middle", "middle", false},    {"last", "last", false},
    {"flush", "flush", false},
};
#define N_BODIES (sizeof bodies / sizeof *bodies)

void fg_emit_c(FgArena *arena, const FgModule *sched, const FgEmitInfo *info, FgBuf *out)
{
    if (sched->level != FG_LEVEL_SCHED)
        FG_BUG("code is made from level sched only");
    FgEmit emit = {.arena = arena, .module = sched, .info = info};
    fg_buf_init(&emit.functions, arena);
    fg_args_cx_init(&emit.args, arena, sched);
    bool there[N_BODIES];
    for (uint32_t i = 0; i < N_BODIES; i++) {
        const FgFunc *func = find_func(sched, bodies[i].func);
        there[i] = func || bodies[i].always;
        if (there[i])
            fg_emit_body(&emit, bodies[i].func, func);
    }
    put_header(&emit, out);
    fg_emit_customs(&emit, out);
    fg_emit_tables(&emit, out);
    fg_buf_puts(out, fg_buf_text(&emit.functions));
    fg_emit_program(&emit, out);
    for (uint32_t i = 0; i < N_BODIES; i++) {
        if (there[i])
            fg_buf_printf(out, "    .%s = body_%s,\n", bodies[i].field, bodies[i].func);
    }
    fg_buf_puts(out, "};\n\nconst FgRtProgram *fg_program(void)\n{\n    return &program;\n}\n");
    if (!fg_emit_has_kernels(&emit))
        return;
    fg_buf_puts(out, "\n#else\n");
    fg_emit_kernels(&emit, out);
    fg_buf_puts(out, "\n#endif\n");
}
