/* memo: what does not depend on the memory that is offered is found out once.
 *
 * A curve of memory against time asks for the same graph again and again. The graph passes, the
 * ladder of recomputed sets and the fixed plans are the same each time, and many plans that a
 * search tries within one budget come up within others: their figures are looked up by the hash of
 * their levers.
 * So are the modules of plans that searches begin with, and runs of those that they improve. Only a
 * placement that is content with what fits depends on the budget; that is not kept. A search goes
 * the same way with a memo and without, and counts the same plans.
 */
#include "passes/memo.h"

FgMemo *fg_memo_new(void)
{
    FgArena *arena = fg_arena_new();
    FgMemo *memo = FG_NEW(arena, FgMemo);
    memo->arena = arena;
    return memo;
}

void fg_memo_free(FgMemo *memo)
{
    fg_arena_free(memo->arena);
}

/* The slot that holds a key, or the free one where it would go. */
static uint32_t *slot_of(const FgMemo *memo, uint64_t key)
{
    uint64_t at = key;
    while (memo->slots[at & (memo->n_slots - 1)] &&
           memo->plans.data[memo->slots[at & (memo->n_slots - 1)] - 1].key != key)
        at++;
    return &memo->slots[at & (memo->n_slots - 1)];
}

FgKnownPlan *fg_memo_find(const FgMemo *memo, uint64_t key)
{
    uint32_t found = memo->n_slots ? *slot_of(memo, key) : 0;
    return found ? &memo->plans.data[found - 1] : NULL;
}

FgKnownPlan *fg_memo_add(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation)
{
    FgKnownPlan *known = fg_memo_find(memo, key);
    if (known)
        return known;
    FgKnownPlan plan = {.key = key, .evaluation = *evaluation};
    plan.evaluation.plan = NULL;
    plan.evaluation.ledger.peak_phase = fg_arena_strdup(memo->arena, evaluation->ledger.peak_phase);
    if (memo->plans.len >= memo->n_slots / 2) {
        memo->n_slots = memo->n_slots ? 2 * memo->n_slots : 256;
        memo->slots = FG_NEW_ARRAY(memo->arena, uint32_t, memo->n_slots);
        for (uint32_t i = 0; i < memo->plans.len; i++)
            *slot_of(memo, memo->plans.data[i].key) = i + 1;
    }
    uint32_t *slot = slot_of(memo, key);
    fg_vec_push(memo->arena, &memo->plans, plan);
    *slot = memo->plans.len;
    return &memo->plans.data[*slot - 1];
}

void fg_memo_add_times(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation,
                       const FgTimes *times)
{
    FgTimes *kept = FG_NEW(memo->arena, FgTimes);
    *kept = *times;
    fg_memo_add(memo, key, evaluation)->times = kept;
}
