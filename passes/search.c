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

#define MAX_REPAIRS 8
#define MAX_BRIEF 12
#define MAX_ROUNDS 3
#define KEEP_PARTS 4
#define NEAR_KEEPS 2
#define WORTHWHILE 0.999 /* of the step before: another round */

static const double SLACKS[] = {1.1, 1.6, 2.5};
#define N_SLACKS (sizeof SLACKS / sizeof *SLACKS)

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
    FgLeverChoice first, choice; /* where the grid begins; that led to *best */
    bool turned;                 /* the other way to reduce was tried */
} Trial;

/* Evaluates the plan of a choice, with less memory for as long as it does not fit; *best is
 * replaced by what is better. */
static bool try_choice(Trial *t, FgLeverChoice choice)
{
    choice.arena_limit = fg_search_arena(t->search, &choice, t->state_bytes);
    for (uint32_t i = 0; i <= MAX_REPAIRS; i++) {
        FgArena *scratch = fg_arena_new();
        FgPlan *plan = fg_estimate_plan(t->estimate, scratch, &choice);
        FgEvaluation now;
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
        if (over >= choice.arena_limit)
            return true;
        choice.arena_limit -= over;
    }
    return true;
}

static bool try_grid(Trial *t)
{
    uint32_t pairs = t->estimate->pairs.len;
    for (uint32_t k = 0; k < N_SLACKS; k++)
        for (uint32_t part = 0; part <= KEEP_PARTS; part++) {
            uint32_t kept = pairs * part / KEEP_PARTS;
            if (part > 0 && kept == pairs * (part - 1) / KEEP_PARTS)
                continue;
            FgLeverChoice choice = t->first;
            choice.slack = SLACKS[k];
            choice.kept = kept;
            if (!try_choice(t, choice))
                return false;
        }
    return true;
}

/* Without gradients in parts, where nobody asked for them, or with them again. */
static bool try_other_reduction(Trial *t)
{
    FgLeverChoice other = t->choice;
    other.parts = !other.parts;
    bool asks = t->first.parts && !t->first.all_parts && !t->turned;
    t->turned = true;
    return !asks || try_choice(t, other);
}

/* The choices around the best one. */
static bool try_near(Trial *t)
{
    if (!try_other_reduction(t))
        return false;
    FgLeverChoice at = t->choice;
    uint32_t pairs = t->estimate->pairs.len;
    for (uint32_t k = 0; k < 2 * N_SLACKS; k++) {
        FgLeverChoice near = at;
        near.slack = SLACKS[k % N_SLACKS];
        near.holds_first = k >= N_SLACKS;
        if (!try_choice(t, near))
            return false;
    }
    at = t->choice;
    for (int k = -NEAR_KEEPS; k <= NEAR_KEEPS; k++) {
        int64_t kept = (int64_t)at.kept + k;
        FgLeverChoice near = at;
        near.kept = (uint32_t)kept;
        if (k != 0 && kept >= 0 && kept <= (int64_t)pairs && !try_choice(t, near))
            return false;
    }
    return true;
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

/* Lowers the base plan and reads the estimate from it. */
static bool open_trial(Trial *t, FgPlan *base)
{
    FgSearch *s = t->search;
    FgArena *arena = fg_arena_new();
    FgEvaluation again;
    FgModule *module;
    bool ok = fg_search_evaluate(s, base, FG_PLACING_QUICK, arena, &again, &module);
    if (ok) {
        fg_estimate_build(s->arena, arena, module, base, s->machine, t->estimate);
        t->state_bytes = module->state_bytes;
    }
    fg_arena_free(arena);
    return ok;
}

bool fg_search_compiled(FgSearch *s, const FgEvaluation *base, FgEvaluation *out,
                        FgLeverChoice *out_choice)
{
    FgEstimate estimate;
    Trial trial = {.search = s, .estimate = &estimate, .best = out, .first = {.slack = SLACKS[0]}};
    s->brief_left = MAX_BRIEF;
    if (!open_trial(&trial, base->plan))
        return false;
    fg_search_choose_parts(s, &estimate, &trial.first);
    trial.choice = trial.first;
    bool ok = try_grid(&trial) && improve(&trial);
    *out_choice = trial.choice;
    return ok;
}

bool fg_search_borders(FgSearch *s, FgPlan *base, FgLeverChoice *choice, FgEvaluation *best)
{
    FgEstimate estimate;
    FgEvaluation found = *best;
    Trial trial = {.search = s, .estimate = &estimate, .best = &found, .first = *choice};
    trial.choice = *choice;
    trial.turned = true;
    if (!open_trial(&trial, base) || !try_choice(&trial, *choice))
        return false;
    if (found.plan == best->plan)
        return true;
    if (!improve(&trial))
        return false;
    *best = found;
    *choice = trial.choice;
    return true;
}
