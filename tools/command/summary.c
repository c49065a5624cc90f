/* The summary of a compile: one screen that answers "does it fit, how fast, what decided it"; and
 * the refusal. */
#include "passes/lower.h"
#include "tools/command/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* Classes at the peak, largest first: "master 2.30 GiB, optimizer 4.60 GiB"; where all are asked
 * for, what of the arena lies unused between them then. */
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
    if (limit == FG_N_MEM_CLASSES && ledger->unused_bytes > 0)
        fg_buf_printf(&text, "%sunused %s", between, fg_bytes_text(arena, ledger->unused_bytes));
    return fg_buf_text(&text);
}

/* "optimizer 2.0 GiB | activations 1.1 GiB" of host memory. */
static const char *host_text(FgArena *arena, const FgLedger *ledger)
{
    FgLedger host = *ledger;
    memcpy(host.by_class, ledger->host_by_class, sizeof host.by_class);
    host.unused_bytes = 0;
    return shares_text(arena, &host, FG_N_MEM_CLASSES, " | ");
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

static const char *dtype_word(FgDtype dtype)
{
    return dtype == FG_F32 ? "fp32" : dtype == FG_F16 ? "fp16" : "bf16";
}

const char *fg_vocab_text(FgArena *arena, const FgNumerics *n)
{
    const char *sums = fg_sums_whole(n) ? ", gradients add up whole" : "";
    if (n->vocab == FG_VOCAB_SHARDED)
        return fg_arena_printf(arena, "vocabulary sharded%s", sums);
    if (n->chunk)
        return fg_arena_printf(arena, "head in pieces of %s tokens%s",
                               fg_count_text(arena, (uint64_t)n->chunk), sums);
    return *sums ? "gradients add up whole" : "vocabulary gathered, head whole";
}

static const char *precision_text(FgArena *arena, const FgNumerics *n)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_buf_puts(&text, dtype_word(n->compute));
    if (n->wire != n->compute)
        fg_buf_printf(&text, ", gradients %s", dtype_word(n->wire));
    if (n->accumulate > 1)
        fg_buf_printf(&text, ", %s micro-steps", fg_count_text(arena, (uint64_t)n->accumulate));
    if (n->clip > 0)
        fg_buf_printf(&text, ", clip %s", fg_double_text(arena, n->clip));
    if (n->vocab == FG_VOCAB_SHARDED || n->chunk || fg_sums_whole(n))
        fg_buf_printf(&text, ", %s", fg_vocab_text(arena, n));
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

/* The figure is rounded up to 1 MiB: at or above what is offered it is no smaller offer. */
static const char *smallest_text(FgArena *arena, const FgCompiled *c)
{
    if (c->smallest_memory_bytes >= c->memory_bytes)
        return "1 MiB less does not fit";
    return fg_arena_printf(arena, "smallest --memory %" PRIu64 "MiB",
                           c->smallest_memory_bytes >> 20);
}

static void put_arena(FgArena *arena, const FgLedger *l, FILE *out)
{
    double ratio =
        l->arena_bound_bytes ? (double)l->arena_bytes / (double)l->arena_bound_bytes : 1.0;
    fprintf(out, "          arena    %s, ", fg_bytes_text(arena, l->arena_bytes));
    if (ratio < 1.0005) /* equal in the digits below */
        fprintf(out, "its lower bound\n");
    else
        fprintf(out, "%.3f of its lower bound %s\n", ratio,
                fg_bytes_text(arena, l->arena_bound_bytes));
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
    fprintf(out, "          peak     %s of %s, %s spare, at %s; %s\n",
            fg_bytes_text(arena, l->peak_bytes), fg_bytes_text(arena, c->budget_bytes),
            fg_bytes_text(arena, c->budget_bytes - l->peak_bytes), l->peak_phase,
            smallest_text(arena, c));
    fprintf(out, "          %s\n", shares_text(arena, l, FG_N_MEM_CLASSES, " | "));
    put_arena(arena, l, out);
    if (l->host_bytes)
        fprintf(out, "          host     %s of %s a rank, beside the above: %s\n",
                fg_bytes_text(arena, l->host_bytes), fg_bytes_text(arena, c->host_memory_bytes),
                host_text(arena, l));
}

/* Which knobs the baseline has. */
static const char *knobs_text(const FgSession *s)
{
    const FgZero3 zero3 = fg_session_options(s).zero3, defaults = FG_ZERO3_DEFAULTS,
                  minimal = FG_ZERO3_MINIMAL;
    if (fg_zero3_equal(&zero3, &defaults))
        return "DeepSpeed's defaults";
    return fg_zero3_equal(&zero3, &minimal) ? "gather at use" : "knobs as given";
}

static void put_time(const FgSession *s, const FgCompiled *c, FILE *out)
{
    FgArena *arena = s->arena;
    fprintf(out, "time      step %s predicted, bound %s (%s)\n", time_text(arena, c->sim.step_us),
            time_text(arena, c->sim.bound_us), c->sim.bound_engine);
    fprintf(out,
            "          compute alone %s, slowed by overlap %s, exposed: gather %s, reduce %s\n",
            time_text(arena, c->sim.compute_us), time_text(arena, c->sim.slowed_us),
            time_text(arena, c->sim.exposed_gather_us), time_text(arena, c->sim.exposed_reduce_us));
    if (c->ledger.host_bytes)
        fprintf(out, "          exposed: copies from and to host memory %s\n",
                time_text(arena, c->sim.exposed_host_us));
    fprintf(out, "          ZeRO-3 (%s): step %s, peak %s%s\n", knobs_text(s),
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
        if (!plan->gathers.data[i].round && plan->gathers.data[i].ahead > most)
            most = plan->gathers.data[i].ahead;
    return most;
}

/* "plan compiled of 54 tried", or which fixed plan the search could not better. */
static const char *plan_text(const FgSession *s, const FgCompiled *c)
{
    const char *name = c->module->plan->name, *tried = fg_count_text(s->arena, c->plans_tried);
    bool searched = fg_flags_choice(s->flags, FG_FLAG_schedule) == FG_SCHEDULE_COMPILED;
    if (!searched)
        return fg_arena_printf(s->arena, "plan %s as asked", name);
    if (strcmp(name, "compiled") == 0)
        return fg_arena_printf(s->arena, "plan compiled of %s tried", tried);
    return fg_arena_printf(s->arena,
                           "compiled (of %s plans tried the %s schedule is the fastest that fits)",
                           tried, fg_schedule_title(name));
}

const char *fg_schedule_title(const char *plan_name)
{
    return strcmp(plan_name, "zero3") == 0 ? "ZeRO-3" : plan_name;
}

/* "none", "full", or how many nodes of how many layers. */
static const char *recompute_text(FgArena *arena, const FgModule *m)
{
    const FgIdVec *nodes = &m->plan->recomputed;
    if (m->plan->recompute != FG_RECOMPUTE_SELECTIVE)
        return m->plan->recompute == FG_RECOMPUTE_FULL ? "full" : "none";
    uint64_t layers = 0;
    bool *seen = FG_NEW_ARRAY(arena, bool, m->nodes.len + 1);
    for (uint32_t i = 0; i < nodes->len; i++) {
        int32_t layer = m->nodes.data[nodes->data[i]].layer;
        layers += layer >= 0 && !seen[layer];
        seen[layer < 0 ? 0 : layer] = true;
    }
    return fg_arena_printf(arena, "%s node%s in %s layer%s", fg_count_text(arena, nodes->len),
                           plural(nodes->len), fg_count_text(arena, layers), plural(layers));
}

static void put_share(FgBuf *text, const char *what, uint32_t n, uint32_t of)
{
    if (n)
        fg_buf_printf(text, "%s%s of %u of %u buckets", text->len ? ", " : "", what, n, of);
}

/* "optimizer of 12 of 33 buckets, 8 activations" */
static const char *offload_text(FgArena *arena, const FgPlan *plan)
{
    uint32_t optimizer = 0, parameters = 0;
    FgBuf text;
    fg_buf_init(&text, arena);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        optimizer += (plan->buckets.data[i].offload & FG_OFFLOAD_OPTIMIZER) != 0;
        parameters += (plan->buckets.data[i].offload & FG_OFFLOAD_PARAMETERS) != 0;
    }
    put_share(&text, "optimizer", optimizer, plan->buckets.len);
    put_share(&text, "parameters", parameters, plan->buckets.len);
    if (plan->stashes.len)
        fg_buf_printf(&text, "%s%u activation%s", text.len ? ", " : "", plan->stashes.len,
                      plural(plan->stashes.len));
    return fg_buf_text(&text);
}

/* A line for copies that outlive the function that gathers them, where there are any. */
static void put_carried(FgArena *arena, const FgModule *m, FILE *out)
{
    uint64_t kept = 0, round = 0;
    for (uint32_t i = 0; i < m->plan->gathers.len; i++) {
        kept += m->plan->gathers.data[i].keep && m->numerics.accumulate > 1;
        round += m->plan->gathers.data[i].round;
    }
    if (kept)
        fprintf(out, "          %s bucket%s kept over the micro-steps%s",
                fg_count_text(arena, kept), plural(kept), round ? ", " : "\n");
    if (round)
        fprintf(out, "%s%s gathered in the step before\n", kept ? "" : "          ",
                fg_count_text(arena, round));
}

/* What was chosen of that which changes results, or what choosing would save. */
static void put_numerics(FgArena *arena, const FgCompiled *c, FILE *out)
{
    const FgOffer *offer = &c->offer;
    if (c->numerics_tried)
        fprintf(out, "          numerics %s: %s\n",
                c->numerics_tried > 1
                    ? fg_arena_printf(arena, "auto, of %u tried", c->numerics_tried)
                    : "auto, nothing to choose",
                fg_vocab_text(arena, &c->numerics));
    if (!offer->made)
        return;
    fputs("          --numerics auto would save ", out);
    if (offer->saves_us > 0)
        fprintf(out, "about %s a step", time_text(arena, offer->saves_us));
    else if (!offer->saves_bytes)
        fputs("nothing", out);
    if (offer->saves_bytes)
        fprintf(out, offer->saves_us > 0 ? " and %s" : "no time, but where memory is short %s",
                fg_bytes_text(arena, offer->saves_bytes));
    if (offer->saves_us > 0 || offer->saves_bytes)
        fprintf(out, " (%s)", fg_vocab_text(arena, &offer->numerics));
    fputc('\n', out);
}

/* Why no gradient comes in parts, though that was asked for. */
static const char *no_parts_text(const FgModule *m)
{
    if (strcmp(m->plan->name, "compiled") != 0)
        return "the fixed schedules bring sums";
    for (uint32_t i = 0; i < m->buckets.len; i++) {
        const char *why = m->buckets.data[i].trainable ? fg_parts_refused(m, i) : NULL;
        if (why)
            return why;
    }
    return "their bytes do not fit";
}

/* A line for gradients that come in parts, where there are any, or where they were asked for. */
static void put_parts(const FgSession *s, const FgModule *m, FILE *out)
{
    uint32_t n = fg_count_parts(m);
    bool asked = fg_flags_choice(s->flags, FG_FLAG_reduce) == FG_REDUCE_PARTS;
    if (n)
        fprintf(out,
                "          gradients of %u of %u buckets come in parts, which updates add up%s\n",
                n, m->buckets.len,
                m->ranks > 2 ? " in rank order: numerics, where GPUs reduce otherwise" : "");
    else if (asked)
        fprintf(out, "          no gradient comes in parts: %s\n", no_parts_text(m));
}

static void put_choices(const FgSession *s, const FgCompiled *c, FILE *out)
{
    FgArena *arena = s->arena;
    const FgPlan *plan = c->module->plan;
    uint64_t ahead = (uint64_t)furthest_ahead(plan);
    fprintf(out,
            "choices   %s: %s bucket%s, gathered up to %s node%s ahead, %s kept to backward,\n",
            plan_text(s, c), fg_count_text(arena, plan->buckets.len), plural(plan->buckets.len),
            fg_count_text(arena, ahead), plural(ahead), fg_count_text(arena, c->kept));
    fprintf(out, "          %s gathered again; %s gather%s of %s in all a step; recompute %s\n",
            fg_count_text(arena, c->regathered), fg_count_text(arena, c->sim.gathers),
            plural(c->sim.gathers), fg_bytes_text(arena, c->sim.gather_bytes),
            recompute_text(arena, c->module));
    put_carried(arena, c->module, out);
    put_parts(s, c->module, out);
    if (c->offload)
        fprintf(out, "          offloaded: %s\n", offload_text(arena, plan));
    put_numerics(arena, c, out);
}

static void put_proof(const FgSession *s, const FgCompiled *c, const char *read_back, FILE *out)
{
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < c->module->funcs.len; i++)
        nodes += c->module->funcs.data[i].order.len;
    fprintf(out,
            "proved    %s nodes: order, lifetimes, %s address reuse%s ordered by %s wait%s, peak "
            "within budget\n          %s\n",
            fg_count_text(s->arena, nodes), fg_count_text(s->arena, c->reuses), plural(c->reuses),
            fg_count_text(s->arena, c->waits), plural(c->waits), read_back);
}

void fg_print_summary(FgSession *s, const FgCompiled *c, const FgWrote *wrote, FILE *out)
{
    bool tied;
    uint64_t n = n_parameters(c->module, &tied);
    fprintf(out, "%s   %s parameter%s%s   %s rank%s   %s%s\n", c->module->name,
            fg_count_text(s->arena, n), plural(n), tied ? " (tied)" : "",
            fg_count_text(s->arena, c->module->ranks), plural(c->module->ranks),
            precision_text(s->arena, &c->numerics), batch_text(s->arena, c->module));
    put_memory(s, c, out);
    put_time(s, c, out);
    put_choices(s, c, out);
    put_proof(s, c, wrote->read_back, out);
    fprintf(out, "wrote     %s%s%s%s   plan fingerprint %016" PRIx64 "\n", wrote->path,
            wrote->run ? " (run with: " : "", wrote->run ? wrote->run : "", wrote->run ? ")" : "",
            c->fingerprint);
    if (wrote->runs_here && strcmp(s->machine.name, "host") != 0)
        fprintf(out,
                "          it runs on this CPU, ranks as threads, with the plan for %s;\n"
                "          --target cuda makes the program for GPUs\n",
                s->machine.name);
}

/* A plan that may keep less for backward may fit where this one does not: the least memory for it,
 * 0 when that is no less. */
static uint64_t least_recomputed(FgSession *s, const FgCompiled *c)
{
    FgCompileOptions options = fg_session_options(s);
    FgCompiled least = {0};
    if (options.recompute == FG_RECOMPUTE_AUTO)
        return 0;
    options.recompute = FG_RECOMPUTE_AUTO;
    options.memory_bytes = 1; /* fits nothing: the fixed plans alone are made */
    bool made = fg_compile(s->arena, s->graph, &s->machine, &s->numerics, &options, &least);
    return made && least.smallest_memory_bytes < c->smallest_memory_bytes
               ? least.smallest_memory_bytes
               : 0;
}

/* Other numerics may fit where these do not. */
static void advise_numerics(FgSession *s, const FgCompiled *c)
{
    FgCompileOptions options = fg_session_options(s);
    FgCompiled least = {0};
    if (options.numerics_auto || options.schedule == FG_SCHEDULE_ZERO3)
        return;
    options.numerics_auto = true;
    options.memory_bytes = 1; /* fits nothing: the fixed plans alone are made */
    if (!fg_compile(s->arena, s->graph, &s->machine, &s->numerics, &options, &least) ||
        least.smallest_memory_bytes >= c->smallest_memory_bytes)
        return;
    bool fits = least.smallest_memory_bytes <= c->memory_bytes;
    fg_diag_note(s->diags, FG_NOWHERE,
                 fits ? "it fits with --numerics auto, which works from --memory %" PRIu64 "MiB on"
                      : "with --numerics auto the smallest is --memory %" PRIu64 "MiB",
                 least.smallest_memory_bytes >> 20);
}

/* The least memory for a set of classes (or for `auto`: 0) on a machine; 0 when it has not the host
 * memory for it. *out_host: what it takes of that. */
static uint64_t least_offloaded(FgSession *s, const FgMachine *machine, uint32_t classes,
                                uint64_t *out_host)
{
    FgCompiled tried = {0};
    FgCompileOptions options = fg_session_options(s);
    options.memory_bytes = 1; /* fits nothing: the fixed plans alone are made */
    options.offload = classes;
    options.offload_auto = classes == FG_OFFLOAD_NONE;
    if (!fg_compile(s->arena, s->graph, machine, &s->numerics, &options, &tried) ||
        !tried.host_fits)
        return 0;
    *out_host = tried.ledger.host_bytes;
    return tried.smallest_memory_bytes;
}

/* What would do with more host memory than there is. */
static void advise_host(FgSession *s, const FgCompiled *c, uint64_t least)
{
    FgMachine wide = s->machine;
    uint64_t host;
    uint32_t ranks = wide.ranks < wide.ranks_per_node ? wide.ranks : wide.ranks_per_node;
    wide.host_node_bytes = UINT64_MAX / 2;
    uint64_t more = least_offloaded(s, &wide, FG_OFFLOAD_ALL, &host);
    if (more && more < least && host > c->host_memory_bytes)
        fg_diag_note(s->diags, FG_NOWHERE,
                     "with %s of host memory a node (%s now) and --offload auto it works from "
                     "--memory %" PRIu64 "MiB on",
                     fg_bytes_text(s->arena, host * ranks),
                     fg_bytes_text(s->arena, s->machine.host_node_bytes), more >> 20);
}

/* What else may leave the device: the smallest set of classes, of those beyond what was asked for,
 * with which it fits; else the one with which the least memory works. */
static void advise_offload(FgSession *s, const FgCompiled *c)
{
    static const struct {
        uint32_t classes;
        const char *text;
    } sets[] = {{FG_OFFLOAD_OPTIMIZER, "optimizer"},
                {FG_OFFLOAD_OPTIMIZER | FG_OFFLOAD_ACTIVATIONS, "optimizer,activations"},
                {FG_OFFLOAD_ALL, "optimizer,activations,parameters"},
                {FG_OFFLOAD_NONE, "auto"}};
    uint64_t least = c->smallest_memory_bytes, host;
    const char *best = NULL;
    FgCompileOptions options = fg_session_options(s);
    if (!c->host_memory_bytes)
        return;
    for (uint32_t i = 0; i < sizeof sets / sizeof *sets && least > c->memory_bytes; i++) {
        bool more = sets[i].classes == FG_OFFLOAD_NONE ||
                    (sets[i].classes != options.offload &&
                     (sets[i].classes & options.offload) == options.offload);
        uint64_t now = more && !options.offload_auto
                           ? least_offloaded(s, &s->machine, sets[i].classes, &host)
                           : 0;
        if (!now || now >= least)
            continue;
        least = now;
        best = sets[i].text;
    }
    if (best)
        fg_diag_note(s->diags, FG_NOWHERE, "%s --offload %s%s --memory %" PRIu64 "MiB%s",
                     least <= c->memory_bytes ? "it fits with" : "with", best,
                     least <= c->memory_bytes ? ", which works from" : " the smallest is",
                     least >> 20, least <= c->memory_bytes ? " on" : "");
    if (least > c->memory_bytes)
        advise_host(s, c, least);
}

static void refuse_host(FgSession *s, const FgCompiled *c)
{
    fg_diag(s->diags, FG_NOWHERE, FG_D_DOES_NOT_FIT,
            "%s does not fit: what is offloaded takes %s of host memory a rank, and %s offers %s",
            s->graph->name, fg_bytes_text(s->arena, c->ledger.host_bytes), s->machine.name,
            fg_bytes_text(s->arena, c->host_memory_bytes));
    fg_diag_note(s->diags, FG_NOWHERE, "offload less, or --offload auto: as much as is needed");
    fg_session_flush(s);
}

void fg_print_refusal(FgSession *s, const FgCompiled *c)
{
    if (!c->host_fits) {
        refuse_host(s, c);
        return;
    }
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
    uint64_t least = least_recomputed(s, c);
    if (least && least <= c->memory_bytes)
        fg_diag_note(s->diags, FG_NOWHERE,
                     "it fits with --recompute auto, which works from --memory %" PRIu64 "MiB on",
                     least >> 20);
    else if (least)
        fg_diag_note(s->diags, FG_NOWHERE,
                     "with --recompute auto the smallest is --memory %" PRIu64 "MiB", least >> 20);
    advise_numerics(s, c);
    advise_offload(s, c);
    fg_session_flush(s);
}
