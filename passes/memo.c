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

#include <inttypes.h>
#include <stdio.h>

typedef struct KeyText {
    char text[17];
} KeyText;

static KeyText text_of(uint64_t key)
{
    KeyText of;
    snprintf(of.text, sizeof of.text, "%016" PRIx64, key);
    return of;
}

FgMemo *fg_memo_new(void)
{
    FgArena *arena = fg_arena_new();
    FgMemo *memo = FG_NEW(arena, FgMemo);
    memo->arena = arena;
    fg_map_init(&memo->by_key, arena);
    return memo;
}

void fg_memo_free(FgMemo *memo)
{
    fg_arena_free(memo->arena);
}

FgKnownPlan *fg_memo_find(const FgMemo *memo, uint64_t key)
{
    uint32_t plan;
    bool known = fg_map_get(&memo->by_key, text_of(key).text, &plan);
    return known ? &memo->plans.data[plan] : NULL;
}

FgKnownPlan *fg_memo_add(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation)
{
    FgKnownPlan *known = fg_memo_find(memo, key);
    if (known)
        return known;
    FgKnownPlan plan = {.key = key, .evaluation = *evaluation};
    plan.evaluation.plan = NULL;
    plan.evaluation.ledger.peak_phase = fg_arena_strdup(memo->arena, evaluation->ledger.peak_phase);
    fg_map_add(&memo->by_key, fg_arena_strdup(memo->arena, text_of(key).text), memo->plans.len);
    fg_vec_push(memo->arena, &memo->plans, plan);
    return &memo->plans.data[memo->plans.len - 1];
}

void fg_memo_add_times(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation,
                       const FgTimes *times)
{
    FgTimes *kept = FG_NEW(memo->arena, FgTimes);
    *kept = *times;
    fg_memo_add(memo, key, evaluation)->times = kept;
}
