/* numerics: fg_compile, and the search over what changes results, for those who allow it.
 *
 * A schedule never changes a result; some choices do, in the order of additions alone: whether the
 * vocabulary's tables are gathered or stay with the owners of their rows, how many tokens a
 * head takes at a time, and where gradients of micro-steps add up. Under `--numerics default` they
 * are what flags say. Under `auto` what no flag says is searched, too:
 *
 *   1. Candidates follow from the graph: as given; the vocabulary sharded; with micro-steps, each
 *      of these with gradients that add up whole; a gathered head in two, four and eight pieces,
 *      where these are long enough for matrix products.
 *   2. Each is tried quickly (fg_run_quick): its floor, and a plan by one choice of levers.
 *   3. What is given, and the best two of the others as far as they come near the best, are
 *      searched thoroughly, as without `auto`. The fastest that fits wins.
 *
 * The baseline keeps the numerics given; `minimum` takes those that need least.
 *
 * So `auto` is never slower than `default`, and fits where any candidate does. The effort is
 * bounded by counts: every machine comes to the same choice.
 *
 * Under `default`, for those who ask (options->offer), two candidates at most are looked at with
 * two lowerings each (with micro-steps three), of some ninety that a search takes, and what they
 * would save is told. */
#include "passes/compile_run.h"
#include "passes/vocab.h"

#include <string.h>
#include <time.h>

#define MIN_PIECE 256       /* tokens: products over fewer are bound by reading the weight */
#define SEARCHED 2          /* candidates searched beside what is given */
#define NEAR_BEST 1.02      /* of the quick step of the best: worth a search */
#define OFFERED_PIECES 4    /* the head that an offer looks at */
#define SMALL_LOGITS 0.01   /* of the peak: pieces would save less */
#define WORTH_TELLING 0.005 /* of the step */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

typedef struct Candidate {
    FgNumerics numerics;
    bool fits;      /* some plan does */
    bool plan_fits; /* the quick one */
    double step_us; /* of the quick plan */
    uint64_t peak_bytes, smallest_bytes;
    uint32_t evaluated;
    bool searched;
} Candidate;

typedef FG_VEC(Candidate) Candidates;

typedef struct Auto {
    FgArena *arena;
    const FgModule *graph;
    const FgMachine *machine;
    const FgCompileOptions *options;
    Candidates candidates; /* the first: as given */
} Auto;

/* ---- candidates ---- */

/* Tokens of a rank that the head of a graph (after its passes) takes, and bytes of all logits; 0
 * where there is no head that can be taken in pieces. */
static int64_t head_tokens(const FgModule *graph, uint64_t *out_logits)
{
    FgArena *scratch = fg_arena_new();
    FgUses uses = fg_uses(scratch, graph);
    FgHead head;
    const char *why;
    int64_t tokens = 0;
    *out_logits = 0;
    if (fg_head_find(&uses, &head, &why)) {
        const FgNode *loss = &graph->nodes.data[head.loss];
        tokens = fg_type_elements(graph->values.data[loss->operands[1]].type);
        *out_logits = fg_type_bytes(graph->values.data[loss->operands[0]].type);
    }
    fg_arena_free(scratch);
    return tokens;
}

static void add_pieces(Auto *a, int64_t tokens, int64_t parts)
{
    FgNumerics n = a->candidates.data[0].numerics;
    n.chunk = (tokens + parts - 1) / parts;
    if (n.chunk >= MIN_PIECE && n.chunk < tokens)
        fg_vec_push(a->arena, &a->candidates, ((Candidate){.numerics = n}));
}

static void add_sharded(Auto *a)
{
    FgNumerics n = a->candidates.data[0].numerics;
    if (a->options->fixed_vocab || n.vocab == FG_VOCAB_SHARDED || a->machine->ranks < 2)
        return;
    n.vocab = FG_VOCAB_SHARDED;
    fg_vec_push(a->arena, &a->candidates, ((Candidate){.numerics = n}));
}

/* Can a head be taken in pieces that is not yet? */
static bool chunk_is_free(const Auto *a)
{
    const FgNumerics *n = &a->candidates.data[0].numerics;
    return !a->options->fixed_chunk && n->vocab == FG_VOCAB_GATHERED && n->chunk == 0;
}

/* With several micro-steps: a candidate, and one reduction a step instead of one in each. */
static void add_whole(Auto *a, FgNumerics n)
{
    if (a->options->fixed_accumulate_in || n.accumulate < 2 || n.accumulate_in == FG_IN_WHOLE)
        return;
    n.accumulate_in = FG_IN_WHOLE;
    n.shard = fg_slice_dtype(&n);
    fg_vec_push(a->arena, &a->candidates, ((Candidate){.numerics = n}));
}

static void find_candidates(Auto *a, const FgModule *graph)
{
    uint64_t logits;
    add_sharded(a);
    for (uint32_t i = 0, n = a->candidates.len; i < n; i++)
        add_whole(a, a->candidates.data[i].numerics);
    int64_t tokens = chunk_is_free(a) ? head_tokens(graph, &logits) : 0;
    for (int64_t parts = 2; parts <= 8; parts *= 2)
        add_pieces(a, tokens, parts);
}

/* Does the graph, after its passes, differ from what is given? */
static bool took_effect(const FgModule *graph, const FgNumerics *given)
{
    if (graph->numerics.accumulate_in != given->accumulate_in &&
        graph->numerics.vocab == given->vocab)
        return true;
    bool sharded = false;
    for (uint32_t i = 0; i < graph->params.len; i++)
        sharded |= graph->params.data[i].sharded;
    return given->vocab != graph->numerics.vocab ? sharded : given->chunk != graph->numerics.chunk;
}

static bool measure(FgRun *run, Candidate *c)
{
    FgEvaluation quick;
    if (!fg_run_least(run) || !fg_run_quick(run, &quick))
        return false;
    c->fits = run->out->fits;
    c->plan_fits = fg_search_fits(&run->search, &quick);
    c->step_us = quick.sim.step_us;
    c->peak_bytes = quick.ledger.peak_bytes;
    c->smallest_bytes = run->out->smallest_memory_bytes;
    c->evaluated = run->search.evaluated;
    return true;
}

/* A fresh run of a candidate, without dumps; false where it changes nothing, or has errors of its
 * own. */
static bool begin_apart(const Auto *a, FgArena *arena, FgRun *run, const Candidate *c,
                        const FgCompileOptions *options, FgCompiled *out)
{
    return fg_run_begin(run, arena, a->graph, a->machine, &c->numerics, options, NULL,
                        fg_diags_new(arena), out) &&
           took_effect(run->graph, &a->candidates.data[0].numerics);
}

static FgCompileOptions quietly(const Auto *a)
{
    FgCompileOptions options = *a->options;
    options.verify_each = false;
    options.dump_dir = options.stop_after = NULL;
    return options;
}

/* Tries a candidate quickly. One that is none drops out: what is given stands for it. */
static bool try_quickly(Auto *a, Candidate *c)
{
    FgArena *arena = fg_arena_new();
    FgCompileOptions options = quietly(a);
    FgRun run;
    FgCompiled out;
    bool ok = begin_apart(a, arena, &run, c, &options, &out) && measure(&run, c);
    fg_search_end(&run.search);
    fg_arena_free(arena);
    return ok;
}

static void try_all(Auto *a)
{
    uint32_t kept = 1;
    for (uint32_t i = 1; i < a->candidates.len; i++)
        if (try_quickly(a, &a->candidates.data[i]))
            a->candidates.data[kept++] = a->candidates.data[i];
    a->candidates.len = kept;
}

static bool quick_better(const Auto *a, const Candidate *x, const Candidate *y)
{
    if (x->fits != y->fits)
        return x->fits;
    if (!x->fits || a->options->schedule == FG_SCHEDULE_MINIMUM)
        return x->smallest_bytes < y->smallest_bytes;
    if (x->plan_fits != y->plan_fits)
        return x->plan_fits;
    if (x->step_us < y->step_us || x->step_us > y->step_us)
        return x->step_us < y->step_us;
    return x->peak_bytes < y->peak_bytes;
}

static Candidate *best_of(const Auto *a)
{
    Candidate *best = &a->candidates.data[0];
    for (uint32_t i = 1; i < a->candidates.len; i++)
        if (quick_better(a, &a->candidates.data[i], best))
            best = &a->candidates.data[i];
    return best;
}

/* The best that is not searched yet and may win; NULL: none. */
static Candidate *next_to_search(const Auto *a)
{
    const Candidate *best = best_of(a);
    Candidate *next = NULL;
    for (uint32_t i = 1; i < a->candidates.len; i++) {
        Candidate *c = &a->candidates.data[i];
        bool near = a->options->schedule == FG_SCHEDULE_MINIMUM
                        ? c == best
                        : c->fits && (!c->plan_fits || c->step_us <= best->step_us * NEAR_BEST);
        if (near && !c->searched && (!next || quick_better(a, c, next)))
            next = c;
    }
    return next;
}

/* ---- the search ---- */

static bool run_better(const FgRun *x, const FgRun *y)
{
    if (x->out->fits != y->out->fits)
        return x->out->fits;
    if (x->options->schedule == FG_SCHEDULE_MINIMUM)
        return x->chosen.ledger.peak_bytes < y->chosen.ledger.peak_bytes;
    return x->out->fits && fg_search_better(&x->search, &x->chosen, &y->chosen);
}

/* A run of a candidate up to its search; NULL after errors. */
static FgRun *run_candidate(Auto *a, Candidate *c)
{
    FgRun *run = FG_NEW(a->arena, FgRun);
    c->searched = true;
    bool ok = fg_run_begin(run, a->arena, a->graph, a->machine, &c->numerics, a->options, NULL,
                           fg_diags_new(a->arena), FG_NEW(a->arena, FgCompiled)) &&
              fg_run_least(run) && fg_run_search(run);
    fg_search_end(&run->search);
    return ok ? run : NULL;
}

static bool search_candidates(Auto *a, FgRun *given, FgRun **out_best, uint32_t *out_evaluated)
{
    *out_best = given;
    if (!best_of(a)->fits) { /* the least of all, for the refusal */
        if (best_of(a) != &a->candidates.data[0])
            *out_best = run_candidate(a, best_of(a));
        return *out_best != NULL;
    }
    for (uint32_t i = 0; i < SEARCHED; i++) {
        Candidate *next = next_to_search(a);
        if (!next)
            break;
        FgRun *run = run_candidate(a, next);
        if (!run)
            return false;
        *out_evaluated += run->search.evaluated;
        if (run_better(run, *out_best))
            *out_best = run;
    }
    return true;
}

static bool compile_auto(Auto *a, FgRun *given)
{
    if (!measure(given, &a->candidates.data[0]) || !fg_run_search(given))
        return false;
    FgRun *best;
    uint32_t evaluated = 0;
    double start = now_ms();
    find_candidates(a, given->graph);
    try_all(a);
    for (uint32_t i = 1; i < a->candidates.len; i++)
        evaluated += a->candidates.data[i].evaluated;
    if (!search_candidates(a, given, &best, &evaluated))
        return false;
    FgCompiled *out = given->out;
    fg_search_add_time(&best->search, "numerics", now_ms() - start);
    bool ok = fg_run_finish(best);
    if (best != given) {
        *out = *best->out;
        out->zero3_step_us = given->zero3.sim.step_us; /* the baseline has the given numerics */
        out->zero3_peak_bytes = given->zero3.ledger.peak_bytes;
        evaluated += given->search.evaluated - best->search.evaluated;
    }
    out->plans_tried += evaluated;
    out->numerics_tried = a->candidates.len;
    for (uint32_t i = 0; i < a->candidates.len; i++)
        if (a->candidates.data[i].smallest_bytes < out->smallest_memory_bytes)
            out->smallest_memory_bytes = a->candidates.data[i].smallest_bytes;
    return ok;
}

/* ---- what `auto` would save ---- */

/* What a candidate saves, by the same two plans of it and of what is given. */
static void look_at(Auto *a, const Candidate *c, const FgEvaluation *given_at_use,
                    const FgEvaluation *given_fast, FgOffer *offer)
{
    FgArena *arena = fg_arena_new();
    FgCompileOptions options = quietly(a);
    options.schedule = FG_SCHEDULE_MINIMUM; /* no probes of rungs: nothing is searched */
    FgRun run;
    FgCompiled out;
    FgEvaluation at_use, fast;
    if (begin_apart(a, arena, &run, c, &options, &out) && fg_run_glance(&run, &at_use, &fast)) {
        double saves = given_fast->sim.step_us - fast.sim.step_us;
        uint64_t least = at_use.ledger.peak_bytes, before = given_at_use->ledger.peak_bytes;
        bool faster = saves > WORTH_TELLING * given_fast->sim.step_us && saves > offer->saves_us;
        bool smaller = before > least && before - least > offer->saves_bytes;
        if (faster || (smaller && offer->saves_us <= 0)) {
            offer->numerics = run.graph->numerics;
            offer->saves_us = faster ? saves : 0;
            offer->saves_bytes = before > least ? before - least : 0;
        }
    }
    fg_search_end(&run.search);
    fg_arena_free(arena);
}

/* Three candidates at most, with two lowerings each: the sharded vocabulary, gradients that add up
 * whole, and a head in pieces where its logits weigh something. */
static bool make_offer(Auto *a, FgRun *given)
{
    uint64_t logits = 0;
    FgCompiled *out = given->out;
    double start = now_ms();
    add_sharded(a);
    add_whole(a, a->candidates.data[0].numerics);
    int64_t tokens = chunk_is_free(a) ? head_tokens(given->graph, &logits) : 0;
    if ((double)logits >= SMALL_LOGITS * (double)given->chosen.ledger.peak_bytes)
        add_pieces(a, tokens, OFFERED_PIECES);
    out->offer.made = true;
    uint32_t tried = given->search.evaluated;
    FgEvaluation at_use, fast;
    if (a->candidates.len > 1 && !fg_run_glance(given, &at_use, &fast))
        return false;
    given->search.evaluated = tried; /* the glance is no part of the search */
    for (uint32_t i = 1; i < a->candidates.len; i++)
        look_at(a, &a->candidates.data[i], &at_use, &fast, &out->offer);
    fg_search_add_time(&given->search, "offer", now_ms() - start);
    return true;
}

static bool compile(Auto *a, FgRun *run)
{
    const FgCompileOptions *options = a->options;
    if (options->numerics_auto && options->schedule != FG_SCHEDULE_ZERO3)
        return compile_auto(a, run);
    bool offers = options->offer && options->schedule == FG_SCHEDULE_COMPILED;
    return fg_run_least(run) && fg_run_search(run) &&
           (!offers || !run->out->fits || make_offer(a, run)) && fg_run_finish(run);
}

bool fg_compile(FgArena *arena, const FgModule *graph, const FgMachine *machine,
                const FgNumerics *numerics, const FgCompileOptions *options, FgCompiled *out)
{
    FgRun run;
    Auto a = {.arena = arena, .graph = graph, .machine = machine, .options = options};
    bool ok =
        fg_run_begin(&run, arena, graph, machine, numerics, options, options->memo, NULL, out);
    if (ok && !run.stopped) {
        fg_vec_push(arena, &a.candidates, ((Candidate){.numerics = *numerics}));
        a.candidates.data[0].numerics.chunk = run.graph->numerics.chunk;
        ok = compile(&a, &run);
    }
    fg_search_end(&run.search);
    return ok;
}
