/* search: the plan that is fastest and fits.
 *
 * The plan that gathers at use is lowered once and read into an estimate of time and memory
 * (passes/estimate.c); levers come from the estimate (passes/levers.c) for choices: how much time a
 * transfer is given over what it takes, who is granted memory first, how many buckets stay gathered
 * from forward to backward, how many are gathered for the next step. Each plan is lowered, placed
 * and simulated; one that does not fit is made again with as much less memory as it was too large.
 * Then the best is improved: its simulated run gives the estimate its times, and the choices around
 * it are tried again, while that helps. With gradients in parts and without is one search each, and
 * the better one goes on: the same descent with less memory than there is often ends lower, where
 * memory is short, since what a plan takes moves by jumps. At the end fast plans that only their
 * placement keeps from fitting are placed with more effort. The fixed plans are candidates too, so
 * the result is never worse than they are. Effort is bounded by counts.
 */
#include "passes/search.h"

#include "passes/estimate.h"

#define MAX_REPAIRS 8
#define MAX_MISSES 6
#define NEAR_MISS 8 /* of a budget, an n-th: how far the placement may be above it */
#define MAX_ROUNDS 3
#define KEEP_PARTS 4
#define NEAR_KEEPS 2
#define NEAR_ROUNDS 2
#define HIDDEN 0.02      /* of a step: compute waits for no more than this */
#define HOPELESS 1.05    /* of the best step: with less memory it will not be better */
#define WORTHWHILE 0.999 /* of the step before: another round */
#define CLOSE 1.02       /* of the better way's step: the other way may win yet */

static const double SLACKS[] = {1.1, 1.6, 2.5};
#define N_SLACKS (sizeof SLACKS / sizeof *SLACKS)
static const double SHARES[] = {1, 0.96, 0.92, 0.88, 0.8};
#define N_SHARES (sizeof SHARES / sizeof *SHARES)
/* Of the memory: further descents, but where plans times nodes of the graph have come to so many.
 */
static const double AGAIN[] = {0.94, 0.9};
#define N_AGAIN (sizeof AGAIN / sizeof *AGAIN)
#define MUCH_WORK 1000000

void fg_search_choose_parts(const FgSearch *s, const FgEstimate *estimate, FgLeverChoice *choice)
{
    bool may = s->reduce == FG_REDUCE_AUTO ? s->machine->ranks == 2 : s->reduce == FG_REDUCE_PARTS;
    choice->all_parts = s->reduce == FG_REDUCE_PARTS;
    choice->parts = may && fg_estimate_wants_parts(estimate, choice->all_parts);
}

uint64_t fg_search_arena(const FgSearch *s, const FgLeverChoice *choice, uint64_t states)
{
    uint64_t taken = states + (choice->parts ? s->machine->reserved_parts : 0);
    return s->budget > taken ? s->budget - taken : 0;
}

uint64_t fg_search_budget(const FgSearch *s, const FgPlan *plan)
{
    uint64_t more = s->machine->reserved_parts;
    if (!fg_plan_takes_parts(plan))
        return s->budget;
    return s->budget > more ? s->budget - more : 0;
}

bool fg_search_fits(const FgSearch *s, const FgEvaluation *e)
{
    return e->ledger.peak_bytes <= fg_search_budget(s, e->plan) &&
           e->ledger.host_bytes <= s->host_budget;
}

bool fg_search_better(const FgSearch *s, const FgEvaluation *a, const FgEvaluation *b)
{
    bool fits_a = fg_search_fits(s, a), fits_b = fg_search_fits(s, b);
    if (fits_a != fits_b)
        return fits_a;
    if (a->sim.step_us < b->sim.step_us || a->sim.step_us > b->sim.step_us)
        return a->sim.step_us < b->sim.step_us;
    return a->ledger.peak_bytes < b->ledger.peak_bytes;
}

typedef struct Trial {
    FgSearch *search;
    FgEstimate *estimate;
    uint64_t state_bytes;
    FgEvaluation *best;
    FgLeverChoice choice; /* that led to *best */
} Trial;

/* Evaluates the plan of a choice, with less memory for as long as it does not fit; *best is
 * replaced by what is better. */
static bool try_choice(Trial *t, FgLeverChoice choice)
{
    choice.arena_limit = fg_search_arena(t->search, &choice, t->state_bytes);
    choice.arena_limit = (uint64_t)((double)choice.arena_limit * choice.share);
    for (uint32_t i = 0; i <= MAX_REPAIRS; i++) {
        FgArena *scratch = fg_arena_new();
        FgPlan *plan = fg_estimate_plan(t->estimate, scratch, &choice);
        FgEvaluation now = {.kept = t->estimate->base->gathers.len - plan->gathers.len};
        bool ok = fg_search_evaluate(t->search, plan, FG_PLACING_QUICK, &now);
        fg_arena_free(scratch);
        if (!ok)
            return false;
        if (fg_search_better(t->search, &now, t->best)) {
            *t->best = now;
            t->choice = choice;
        }
        uint64_t budget = fg_search_budget(t->search, plan);
        if (now.ledger.peak_bytes <= budget)
            return true;
        uint64_t over = now.ledger.peak_bytes - budget;
        bool slow =
            fg_search_fits(t->search, t->best) && now.sim.step_us > t->best->sim.step_us * HOPELESS;
        if (over >= choice.arena_limit || slow)
            return true;
        choice.arena_limit -= over;
    }
    return true;
}

/* Nothing, some and all that fits kept gathered. */
static bool try_keeps(Trial *t)
{
    FgLeverChoice choice = t->choice;
    uint32_t pairs = t->estimate->pairs.len;
    for (uint32_t part = 0; part <= KEEP_PARTS; part++) {
        choice.kept = pairs * part / KEEP_PARTS;
        if (part > 0 && choice.kept == pairs * (part - 1) / KEEP_PARTS)
            continue;
        if (!try_choice(t, choice))
            return false;
    }
    return true;
}

/* Other times for transfers, and holds before prefetches or behind them. */
static bool try_slacks(Trial *t)
{
    FgLeverChoice near = t->choice;
    for (uint32_t k = 0; k < FG_N_ORDERS * N_SLACKS; k++) {
        near.slack = SLACKS[k % N_SLACKS];
        near.order = (FgLeverOrder)(k / N_SLACKS);
        if (!try_choice(t, near))
            return false;
    }
    return true;
}

static bool try_near_keeps(Trial *t)
{
    FgLeverChoice at = t->choice;
    for (int k = -NEAR_KEEPS; k <= NEAR_KEEPS; k++) {
        int64_t kept = (int64_t)at.kept + k;
        FgLeverChoice near = at;
        near.kept = (uint32_t)kept;
        if (k != 0 && kept >= 0 && kept <= (int64_t)t->estimate->pairs.len && !try_choice(t, near))
            return false;
    }
    return true;
}

/* More or fewer gathers at the end of the step before: a first time any number, then about as
 * many. */
static bool try_rounds(Trial *t)
{
    FgLeverChoice near = t->choice;
    uint32_t at = near.round, most = 0;
    for (uint32_t i = 0; i < t->estimate->gathers.len; i++)
        most += t->estimate->gathers.data[i].may_round;
    for (uint32_t n = at > 0 ? (at + 1) / 2 : 1; n <= most && n <= (at > 0 ? 2 * at : most);
         n = at > 0 ? n + (at + 3) / 4 : 2 * n)
        for (uint32_t place = 0; place < FG_N_ROUND_PLACES; place++) {
            near.round = n;
            near.place = (FgRoundPlace)place;
            if (!try_choice(t, near))
                return false;
        }
    return true;
}

/* One or two more or fewer of them; and without the first: the first layer's gradient comes last,
 * and with it its update, so that its gather is what a step ends with when it runs round. */
static bool try_near_rounds(Trial *t)
{
    FgLeverChoice near = t->choice;
    uint32_t round = near.round, least = round > NEAR_ROUNDS ? round - NEAR_ROUNDS : 1;
    for (near.round = least; near.round <= round + NEAR_ROUNDS; near.round++)
        for (near.left = 0; near.left < 2; near.left++)
            if (!try_choice(t, near))
                return false;
    return true;
}

/* Less memory than there is: what lasts shorter may be placed better. */
static bool try_shares(Trial *t)
{
    FgLeverChoice near = t->choice;
    for (uint32_t k = 0; k < N_SHARES; k++) {
        near.share = SHARES[k];
        if (!try_choice(t, near))
            return false;
    }
    return true;
}

/* Does compute stand still for long enough that one looks further? */
static bool waits(const FgEvaluation *e)
{
    double exposed = 0;
    for (uint32_t i = 0; i < FG_N_STREAMS; i++)
        exposed += e->sim.exposed_us[i];
    return exposed > HIDDEN * e->sim.step_us;
}

static bool try_near(Trial *t)
{
    return try_slacks(t) && try_near_keeps(t) &&
           (!waits(t->best) || (try_rounds(t) && try_shares(t)));
}

/* Gives the estimate the times of the best plan's run. */
static bool retime(Trial *t)
{
    FgArena *scratch = fg_arena_new();
    FgTimes times;
    bool ok = fg_search_times(t->search, t->best, scratch, &times);
    if (ok)
        fg_estimate_retime(t->estimate, &times);
    fg_arena_free(scratch);
    return ok;
}

/* Tries the choices around the best plan's with the times of its run, while that helps. */
static bool improve(Trial *t, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        double before = t->best->sim.step_us;
        if (!retime(t) || !try_near(t))
            return false;
        if (t->best->sim.step_us > before * WORTHWHILE)
            break;
    }
    return true;
}

/* One way to reduce, from the beginning: what the plans of a grid come to. */
static bool try_way(Trial *t, const FgModule *module, const FgEvaluation *base, bool parts)
{
    FgArena *scratch = fg_arena_new();
    fg_estimate_build(t->search->arena, scratch, module, base->plan, t->search->machine,
                      t->estimate);
    fg_arena_free(scratch);
    t->choice = (FgLeverChoice){.slack = SLACKS[0], .share = 1};
    fg_search_choose_parts(t->search, t->estimate, &t->choice);
    t->choice.parts &= parts;
    return try_keeps(t) && improve(t, MAX_ROUNDS);
}

static bool much_work(const FgSearch *s)
{
    return (uint64_t)s->evaluated * s->graph->nodes.len > MUCH_WORK;
}

/* From where a descent ended, with less memory and nothing to beat but the plan that gathers at
 * use. */
static bool descend_again(Trial *t, const FgEvaluation *base)
{
    const FgLeverChoice from = t->choice;
    for (uint32_t i = 0; i < N_AGAIN; i++) {
        if (!waits(t->best) || much_work(t->search))
            break;
        FgEvaluation found = *base;
        Trial again = *t;
        again.best = &found;
        again.choice = from;
        again.choice.share = AGAIN[i];
        if (!try_choice(&again, again.choice) || !improve(&again, MAX_ROUNDS))
            return false;
        if (fg_search_better(t->search, &found, t->best)) {
            *t->best = found;
            t->choice = again.choice;
        }
    }
    return true;
}

bool fg_search_compiled(FgSearch *s, const FgEvaluation *base, FgEvaluation *out,
                        FgLeverChoice *out_choice)
{
    FgArena *arena = fg_arena_new();
    FgEvaluation again = {0}, summed = *out, parts = *out;
    const FgModule *module;
    FgEstimate by_sums, by_parts;
    Trial a = {.search = s, .estimate = &by_parts, .best = &parts};
    Trial b = {.search = s, .estimate = &by_sums, .best = &summed};
    bool ok = fg_search_lower(s, base->plan, arena, &again, &module);
    a.state_bytes = b.state_bytes = ok ? module->state_bytes : 0;
    ok = ok && try_way(&a, module, base, true);
    bool asks = ok && a.choice.parts && !a.choice.all_parts;
    ok = ok && (!asks || try_way(&b, module, base, false));
    fg_arena_free(arena);
    double close = parts.sim.step_us < summed.sim.step_us ? parts.sim.step_us : summed.sim.step_us;
    close *= CLOSE;
    if (!asks || parts.sim.step_us <= close)
        ok = ok && descend_again(&a, base);
    if (asks && summed.sim.step_us <= close)
        ok = ok && descend_again(&b, base);
    const Trial *better = asks && fg_search_better(s, &summed, &parts) ? &b : &a;
    *out = *better->best;
    *out_choice = better->choice;
    return ok;
}

bool fg_search_borders(FgSearch *s, FgPlan *base, FgLeverChoice *choice, FgEvaluation *best)
{
    FgArena *arena = fg_arena_new();
    FgEvaluation again = {0}, found = *best;
    const FgModule *module;
    FgEstimate estimate;
    Trial trial = {.search = s, .estimate = &estimate, .best = &found, .choice = *choice};
    bool ok = fg_search_lower(s, base, arena, &again, &module);
    if (ok) {
        trial.state_bytes = module->state_bytes;
        fg_estimate_build(s->arena, arena, module, base, s->machine, &estimate);
    }
    fg_arena_free(arena);
    if (!ok || !try_choice(&trial, *choice))
        return false;
    if (found.plan == best->plan)
        return true;
    if (!improve(&trial, MAX_ROUNDS))
        return false;
    *best = found;
    *choice = trial.choice;
    return true;
}

bool fg_search_refine(FgSearch *s, const FgSearchEnd *end, FgEvaluation *best)
{
    if (!end->base || end->choice.round == 0 || best->graph != end->graph || !waits(best) ||
        best->plan->buckets.len != end->base->buckets.len || much_work(s))
        return true;
    FgArena *arena = fg_arena_new();
    FgEvaluation again = {0}, found = *best;
    const FgModule *module;
    FgEstimate estimate;
    Trial trial = {.search = s, .estimate = &estimate, .best = &found, .choice = end->choice};
    s->graph = end->graph;
    bool ok = fg_search_lower(s, end->base, arena, &again, &module);
    if (ok) {
        trial.state_bytes = module->state_bytes;
        fg_estimate_build(s->arena, arena, module, end->base, s->machine, &estimate);
    }
    ok = ok && retime(&trial) && try_near_rounds(&trial);
    fg_arena_free(arena);
    if (ok && found.plan != best->plan)
        ok = improve(&trial, MAX_ROUNDS);
    *best = found;
    return ok;
}

/* ---- plans that missed the budget ---- */
static bool missed(const FgSearch *s, const FgEvaluation *e)
{
    const FgLedger *ledger = &e->ledger;
    uint64_t budget = fg_search_budget(s, e->plan);
    return e->placing == FG_PLACING_QUICK && ledger->peak_bytes > budget &&
           ledger->peak_bytes - budget <= ledger->arena_bytes / NEAR_MISS &&
           ledger->peak_bytes - ledger->arena_bytes + ledger->arena_bound_bytes <= budget &&
           ledger->host_bytes <= s->host_budget;
}

/* The fastest that took more than `above`, and would be better than the best. */
static const FgEvaluation *next_miss(const FgSearch *s, double above, const FgEvaluation *best)
{
    const FgEvaluation *found = NULL;
    for (uint32_t i = 0; i < s->seen.len; i++) {
        const FgEvaluation *e = &s->seen.data[i].evaluation;
        if (e->sim.step_us > above && e->sim.step_us < best->sim.step_us * WORTHWHILE &&
            (!found || e->sim.step_us < found->sim.step_us) && missed(s, e))
            found = e;
    }
    return found;
}

bool fg_search_misses(FgSearch *s, FgEvaluation *best)
{
    double above = 0;
    for (uint32_t i = 0; i < MAX_MISSES && waits(best); i++) {
        const FgEvaluation *miss = next_miss(s, above, best);
        if (!miss)
            break;
        above = miss->sim.step_us;
        FgEvaluation now = {.kept = miss->kept};
        s->graph = miss->graph;
        if (!fg_search_evaluate(s, miss->plan, FG_PLACING_FITTING, &now))
            return false;
        if (fg_search_better(s, &now, best))
            *best = now;
    }
    return true;
}
