/* Collectives between the ranks of a group, which are threads that read each other's memory.
 *
 * Each is a rendezvous, then every rank pulling what it needs, then a rendezvous again: after it
 * nobody reads a rank's send buffer any more, which is what completion promises. Sums add in rank
 * order in f32 and round once, so the result does not depend on which rank came first. */
#include "runtime/host/elements.h"
#include "runtime/host/kernels.h"

static const FgRtCx *peer(const FgRtCx *cx, uint32_t rank)
{
    return &cx->group->ranks[rank];
}

void fg_host_gather(FgRtCx *cx, uint64_t shard, uint64_t whole, uint64_t bytes)
{
    if (!fg_rt_meet(cx, cx->call))
        return;
    for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
        memcpy(fg_at(cx, whole + rank * bytes), fg_at(peer(cx, rank), shard), bytes);
    fg_rt_meet(cx, cx->call);
}

void fg_host_exchange(FgRtCx *cx, uint64_t x, uint64_t all, uint64_t bytes)
{
    fg_host_gather(cx, x, all, bytes);
}

void fg_host_all_to_all(FgRtCx *cx, uint64_t whole, uint64_t parts, uint64_t elements,
                        uint64_t wire)
{
    if (!fg_rt_meet(cx, cx->call))
        return;
    uint64_t own = elements / cx->group->n_ranks * fg_rt_dtype_bytes(wire);
    for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
        memcpy(fg_at(cx, parts + rank * own), fg_at(peer(cx, rank), whole + cx->rank * own), own);
    fg_rt_meet(cx, cx->call);
}

void fg_host_collect(FgRtCx *cx, uint64_t x, uint64_t all, uint64_t elements, uint64_t n,
                     uint64_t first, uint64_t dt)
{
    (void)elements;
    uint64_t size = fg_rt_dtype_bytes(dt);
    fg_host_gather(cx, x + first * size, all, n / cx->group->n_ranks * size);
}

/* The sums of ranks' parts from element `from` of each on, rank by rank, into `to` from `first`. */
static void sum_parts(FgRtCx *cx, uint64_t parts, uint64_t part_dt, uint64_t from, uint64_t to,
                      uint64_t dt, uint64_t first, uint64_t count, bool accumulate)
{
    float sum[FG_CHUNK], scratch[FG_CHUNK];
    for (uint64_t at = 0; at < count; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, count - at);
        for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++) {
            const float *part =
                fg_load(fg_at(peer(cx, rank), parts), part_dt, from + at, n, scratch);
            for (uint64_t i = 0; i < n; i++)
                sum[i] = rank ? sum[i] + part[i] : part[i];
        }
        fg_store_sum(fg_at(cx, to), dt, first + at, n, sum, accumulate);
    }
}

void fg_host_return_rows(FgRtCx *cx, uint64_t before, uint64_t part, uint64_t y, uint64_t elements,
                         uint64_t n, uint64_t first, uint64_t part_dt, uint64_t dt)
{
    uint64_t own = n / cx->group->n_ranks;
    if (before != FG_RT_NONE && before != y) {
        fg_rt_raise(cx, "rows return to where the earlier ones are");
        return;
    }
    if (before == FG_RT_NONE && own < elements)
        memset(fg_at(cx, y), 0, elements * fg_rt_dtype_bytes(dt));
    if (!fg_rt_meet(cx, cx->call))
        return;
    sum_parts(cx, part, part_dt, cx->rank * own, y, dt, first, own, false);
    fg_rt_meet(cx, cx->call);
}

void fg_host_reduce_scatter(FgRtCx *cx, uint64_t whole, uint64_t shard, uint64_t elements,
                            uint64_t wire, uint64_t dt, uint64_t accumulate)
{
    if (!fg_rt_meet(cx, cx->call))
        return;
    uint64_t own = elements / cx->group->n_ranks;
    sum_parts(cx, whole, wire, cx->rank * own, shard, dt, 0, own, accumulate != 0);
    fg_rt_meet(cx, cx->call);
}

/* In place, so each rank sums one slice and writes it to all: nobody else reads or writes that
 * slice. */
static void all_reduce_i64(const FgRtCx *cx, uint64_t x, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        int64_t sum = 0;
        for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
            sum += ((const int64_t *)fg_at(peer(cx, rank), x))[i];
        for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
            ((int64_t *)fg_at(peer(cx, rank), x))[i] = sum;
    }
}

static void all_reduce_f64(const FgRtCx *cx, uint64_t x, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        double sum = 0;
        for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
            sum += ((const double *)fg_at(peer(cx, rank), x))[i];
        for (uint32_t rank = 0; rank < cx->group->n_ranks; rank++)
            ((double *)fg_at(peer(cx, rank), x))[i] = sum;
    }
}

void fg_host_all_reduce(FgRtCx *cx, uint64_t x, uint64_t n, uint64_t dt)
{
    if (dt != FG_RT_I64 && dt != FG_RT_F64) {
        fg_rt_raise(cx, "all_reduce sums i64 and f64 only");
        return;
    }
    if (!fg_rt_meet(cx, cx->call))
        return;
    uint32_t n_ranks = cx->group->n_ranks;
    uint64_t begin = n * cx->rank / n_ranks, end = n * (cx->rank + (uint64_t)1) / n_ranks;
    if (dt == FG_RT_I64)
        all_reduce_i64(cx, x, begin, end);
    else
        all_reduce_f64(cx, x, begin, end);
    fg_rt_meet(cx, cx->call);
}
