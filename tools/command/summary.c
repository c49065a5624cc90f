/* The summary of a compile: one screen that answers "does it fit, how fast, what decided it"; and
 * the refusal. */
#include "tools/command/session.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Share {
    FgMemClass mem;
    uint64_t bytes;
} Share;

static int by_bytes(const void *a, const void *b)
{
    const Share *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->mem < y->mem ? -1 : 1;
}

/* Classes at the peak, largest first: "master 2.30 GiB, optimizer 4.60 GiB". */
static const char *shares_text(FgArena *arena, const FgLedger *ledger, uint32_t limit,
                               const char *between)
{
    Share shares[FG_N_MEM_CLASSES];
    FgBuf text;
    fg_buf_init(&text, arena);
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++)
        shares[i] = (Share){(FgMemClass)i, ledger->by_class[i]};
    qsort(shares, FG_N_MEM_CLASSES, sizeof *shares, by_bytes);
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES && i < limit && shares[i].bytes > 0; i++)
        fg_buf_printf(&text, "%s%s %s", i ? between : "", fg_mem_class_name(shares[i].mem),
                      fg_bytes_text(arena, shares[i].bytes));
    return fg_buf_text(&text);
}

static const char *time_text(FgArena *arena, double us)
{
    if (us >= 1e6)
        return fg_arena_printf(arena, "%.2f s", us / 1e6);
    return us >= 1e3 ? fg_arena_printf(arena, "%.2f ms", us / 1e3)
                     : fg_arena_printf(arena, "%.0f us", us);
}

static uint64_t n_parameters(const FgModule *m, bool *out_tied)
{
    uint64_t n = 0;
    *out_tied = false;
    for (uint32_t i = 0; i < m->params.len; i++) {
        n += (uint64_t)fg_type_elements(m->params.data[i].type);
        *out_tied = *out_tied || m->params.data[i].n_tied > 0;
    }
    return n;
}

static const char *precision_text(FgArena *arena, const FgNumerics *n)
{
    const char *compute = n->compute == FG_F32 ? "fp32" : "bf16";
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_buf_puts(&text, compute);
    if (n->wire != n->compute)
        fg_buf_printf(&text, ", gradients %s", n->wire == FG_F32 ? "fp32" : "bf16");
    if (n->accumulate > 1)
        fg_buf_printf(&text, ", %" PRId64 " micro-steps", n->accumulate);
    if (n->clip > 0)
        fg_buf_printf(&text, ", clip %s", fg_double_text(arena, n->clip));
    return fg_buf_text(&text);
}

/* "batch 4 x 64": the shape of the first input that has a role. */
static const char *batch_text(FgArena *arena, const FgModule *m)
{
    for (uint32_t i = 0; i < m->inputs.len; i++) {
        const FgType *type = m->inputs.data[i].type;
        if (m->inputs.data[i].role != FG_INPUT_OTHER && type->rank == 2)
            return fg_arena_printf(arena, ", batch %" PRId64 " x %" PRId64, type->dims[0],
                                   type->dims[1]);
        if (m->inputs.data[i].role != FG_INPUT_OTHER && type->rank == 1)
            return fg_arena_printf(arena, ", batch %" PRId64, type->dims[0]);
    }
    return "";
}

static void put_memory(const FgSession *s, const FgCompiled *c, FILE *out)
{
    FgArena *arena = s->arena;
    const FgLedger *l = &c->ledger;
    fprintf(out, "memory    offered  %s a rank (%s)\n", fg_bytes_text(arena, c->memory_bytes),
            s->machine.name);
    fprintf(out, "          reserved %s%s: context, communicators, library state\n",
            fg_bytes_text(arena, c->reserved_bytes),
            s->machine.reserved_estimated ? " (an estimate)" : "");
    fprintf(out, "          peak     %s of %s, %s spare, at %s; smallest --memory %" PRIu64 "MiB\n",
            fg_bytes_text(arena, l->peak_bytes), fg_bytes_text(arena, c->budget_bytes),
            fg_bytes_text(arena, c->budget_bytes - l->peak_bytes), l->peak_phase,
            c->smallest_memory_bytes >> 20);
    fprintf(out, "          %s\n", shares_text(arena, l, FG_N_MEM_CLASSES, " | "));
    fprintf(out, "          arena    %s, ", fg_bytes_text(arena, l->arena_bytes));
    if (l->arena_bytes == l->arena_bound_bytes)
        fprintf(out, "its lower bound\n");
    else
        fprintf(out, "%.3f of its lower bound %s\n",
                l->arena_bound_bytes ? (double)l->arena_bytes / (double)l->arena_bound_bytes : 1.0,
                fg_bytes_text(arena, l->arena_bound_bytes));
}

static void put_time(const FgSession *s, const FgCompiled *c, FILE *out)
{
    FgArena *arena = s->arena;
    fprintf(out, "time      step %s predicted, bound %s (%s); exposed: gather %s, reduce %s\n",
            time_text(arena, c->sim.step_us), time_text(arena, c->sim.bound_us),
            c->sim.bound_engine, time_text(arena, c->sim.exposed_gather_us),
            time_text(arena, c->sim.exposed_reduce_us));
    fprintf(out, "          ZeRO-3 (gather at use): step %s, peak %s%s\n",
            time_text(arena, c->zero3_step_us), fg_bytes_text(arena, c->zero3_peak_bytes),
            c->zero3_peak_bytes <= c->budget_bytes ? "" : ", which does not fit");
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static int64_t furthest_ahead(const FgPlan *plan)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        most = plan->gathers.data[i].ahead > most ? plan->gathers.data[i].ahead : most;
    return most;
}

static void put_choices(const FgSession *s, const FgCompiled *c, FILE *out)
{
    const FgPlan *plan = c->module->plan;
    fprintf(out,
            "choices   plan %s of %u tried: %u bucket%s, gathered up to %" PRId64
            " nodes ahead, %u kept to backward,\n",
            plan->name, c->plans_tried, plan->buckets.len, plural(plan->buckets.len),
            furthest_ahead(plan), c->kept);
    fprintf(out, "          %u gathered again; %u gathers receive %s a step; recompute %s\n",
            c->regathered, c->sim.gathers, fg_bytes_text(s->arena, c->sim.gather_bytes),
            plan->recompute == FG_RECOMPUTE_FULL ? "full" : "none");
}

static void put_proof(const FgSession *s, const FgCompiled *c, const char *read_back, FILE *out)
{
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < c->module->funcs.len; i++)
        nodes += c->module->funcs.data[i].order.len;
    fprintf(out,
            "proved    %s nodes: order, lifetimes, %s address reuse%s ordered by %u waits, peak "
            "within budget\n          %s\n",
            fg_count_text(s->arena, nodes), fg_count_text(s->arena, c->reuses), plural(c->reuses),
            c->waits, read_back);
}

void fg_print_summary(FgSession *s, const FgCompiled *c, const FgWrote *wrote, FILE *out)
{
    bool tied;
    uint64_t n = n_parameters(c->module, &tied);
    fprintf(out, "%s   %s parameters%s   %u rank%s   %s%s\n", c->module->name,
            fg_count_text(s->arena, n), tied ? " (tied)" : "", c->module->ranks,
            plural(c->module->ranks), precision_text(s->arena, &s->numerics),
            batch_text(s->arena, c->module));
    put_memory(s, c, out);
    put_time(s, c, out);
    put_choices(s, c, out);
    put_proof(s, c, wrote->read_back, out);
    fprintf(out, "wrote     %s%s%s%s   plan fingerprint %016" PRIx64 "\n", wrote->path,
            wrote->run ? " (run with: " : "", wrote->run ? wrote->run : "", wrote->run ? ")" : "",
            c->fingerprint);
}

void fg_print_refusal(FgSession *s, const FgCompiled *c)
{
    FgArena *arena = s->arena;
    fg_diag(s->diags, FG_NOWHERE, FG_D_DOES_NOT_FIT,
            "%s does not fit: %s a rank is offered, %s of it reserved%s, and the smallest plan "
            "takes %s",
            s->graph->name, fg_bytes_text(arena, c->memory_bytes),
            fg_bytes_text(arena, c->reserved_bytes),
            s->machine.reserved_estimated ? " (an estimate)" : "",
            fg_bytes_text(arena, c->ledger.peak_bytes));
    fg_diag_note(s->diags, FG_NOWHERE, "the smallest memory that works: --memory %" PRIu64 "MiB",
                 c->smallest_memory_bytes >> 20);
    fg_diag_note(s->diags, FG_NOWHERE, "its peak is at %s: %s", c->ledger.peak_phase,
                 shares_text(arena, &c->ledger, 4, ", "));
    fg_session_flush(s);
}
