/* search: the plan that is fastest and fits.
 *
 * The plan that gathers at use is lowered once and read into a estimate of time and memory
 * (passes/estimate.c); levers come from the estimate (passes/levers.c) for a grid of choices: how
 * much time a transfer is given over what it takes, and how many buckets stay gathered from forward
 * to backward. Each plan is lowered, placed and simulated; one that does not fit is made again with
 * as much less memory as it was too large. Then the best is improved: its simulated run gives the
 * estimate its times, and the choices around it are tried again, while that helps. The fixed plans
 * are candidates too, so the result is never worse than they are. Effort is bounded by counts.
 */
#include "passes/search.h"

#include "passes/estimate.h"

#include <math.h>

#define MAX_REPAIRS 8
#define MAX_BRIEF 12
#define MAX_ROUNDS 4
#define KEEP_PARTS 4
#define NEAR_KEEPS 2
#define HOPELESS 1.05    /* of the best step: with less memory it will not be better */
#define WORTHWHILE 0.999 /* of the step before: another round */

static const double SLACKS[] = {1.1, 1.6, 2.5};
#define N_SLACKS (sizeof SLACKS / sizeof *SLACKS)
static const double SHARES[] = {1, 0.96, 0.92, 0.88, 0.8};
#define N_SHARES (sizeof SHARES / sizeof *SHARES)

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

void fg_search_beat(FgSearch *s, const FgEvaluation *best)
{
    s->beat_us = fg_search_fits(s, best) ? best->sim.step_us : INFINITY;
}

typedef struct Trial {
    FgSearch *search;
    FgEstimate *estimate;
    uint64_t state_bytes;
    FgEvaluation *best;
    FgLeverChoice first, choice; /* where the grid begins; that led to *best */
    bool turned;                 /* the other way to reduce was tried */
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
        FgEvaluation now;
        fg_search_beat(t->search, t->best);
        bool ok = fg_search_evaluate(t->search, plan, FG_PLACING_BY_NEED, NULL, &now, NULL);
        now.kept = t->estimate->base->gathers.len - plan->gathers.len;
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
        if (over >= choice.arena_limit || now.sim.step_us > t->search->beat_us * HOPELESS)
            return true;
        choice.arena_limit -= over;
    }
    return true;
}

static bool try_keeps(Trial *t, FgLeverChoice choice)
{
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

/* Keeps by slack; whether gradients come in parts is settled with the first slack. */
static bool try_grid(Trial *t)
{
    FgLeverChoice choice = t->first;
    for (uint32_t k = 0; k < N_SLACKS; k++) {
        choice.slack = SLACKS[k];
        if (!try_keeps(t, choice))
            return false;
        if (k > 0 || !choice.parts || choice.all_parts)
            continue;
        choice.parts = false;
        if (!try_keeps(t, choice))
            return false;
        choice.parts = t->choice.parts;
    }
    return true;
}

/* Other times for transfers, and holds before prefetches or behind them. */
static bool try_slacks(Trial *t)
{
    FgLeverChoice near = t->choice;
    for (uint32_t k = 0; k < 2 * N_SLACKS; k++) {
        near.slack = SLACKS[k % N_SLACKS];
        near.holds_first = k >= N_SLACKS;
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
    uint32_t at = near.round, most = t->estimate->base->buckets.len;
    for (uint32_t n = at > 0 ? (at + 1) / 2 : 1; n <= most && n <= (at > 0 ? 2 * at : most);
         n = at > 0 ? n + (at + 3) / 4 : 2 * n) {
        near.round = n;
        if (n != at && !try_choice(t, near))
            return false;
    }
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

/* The other way to reduce, where nobody asked for parts. */
static bool try_other_reduction(Trial *t)
{
    FgLeverChoice other = t->choice;
    other.parts = !other.parts;
    bool asks = t->first.parts && !t->first.all_parts && !t->turned;
    t->turned = true;
    return !asks || try_choice(t, other);
}

static bool try_near(Trial *t)
{
    return try_other_reduction(t) && try_slacks(t) && try_near_keeps(t) && try_rounds(t) &&
           try_shares(t);
}

/* Gives the estimate the times of the best plan's run and tries the choices around it, while that
 * helps. */
static bool improve(Trial *t)
{
    for (uint32_t round = 0; round < MAX_ROUNDS; round++) {
        FgArena *scratch = fg_arena_new();
        FgEvaluation again;
        FgModule *module;
        double before = t->best->sim.step_us;
        bool ok = fg_search_evaluate(t->search, t->best->plan, t->best->placing, scratch, &again,
                                     &module);
        if (ok)
            fg_estimate_retime(t->estimate, scratch, module, t->search->machine);
        fg_arena_free(scratch);
        if (!ok || !try_near(t))
            return false;
        if (t->best->sim.step_us > before * WORTHWHILE)
            break;
    }
    return true;
}

bool fg_search_compiled(FgSearch *s, const FgEvaluation *base, FgEvaluation *out)
{
    FgArena *arena = fg_arena_new();
    FgEvaluation again;
    FgModule *module;
    FgEstimate estimate;
    Trial trial = {
        .search = s, .estimate = &estimate, .best = out, .first = {.slack = SLACKS[0], .share = 1}};
    s->brief_left = MAX_BRIEF;
    bool ok = fg_search_evaluate(s, base->plan, FG_PLACING_QUICK, arena, &again, &module);
    if (ok) {
        fg_estimate_build(s->arena, arena, module, base->plan, s->machine, &estimate);
        trial.state_bytes = module->state_bytes;
        fg_search_choose_parts(s, &estimate, &trial.first);
        trial.choice = trial.first;
    }
    fg_arena_free(arena);
    return ok && try_grid(&trial) && improve(&trial);
}
