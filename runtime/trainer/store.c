/* One walk serves all: split a range of a parameter at the borders of the ranks' slices, and do
 * something to each piece. */
#include "runtime/trainer/store.h"

#include "runtime/dtype.h"

#include <stdlib.h>
#include <string.h>

/* The piece of [first, first + count) that starts at its first element: where it lies. */
typedef struct Piece {
    uint32_t rank;
    uint64_t at;    /* element in the rank's slice */
    uint64_t count; /* elements */
} Piece;

static Piece piece_at(const FgStore *store, uint32_t param, uint64_t first, uint64_t count)
{
    const FgRtParam *p = &store->program->params[param];
    const FgRtBucket *bucket = &store->program->buckets[p->bucket];
    uint64_t slice = bucket->elements / store->program->ranks, place = p->offset + first;
    Piece piece = {(uint32_t)(place / slice), place % slice, slice - place % slice};
    if (piece.count > count)
        piece.count = count;
    return piece;
}

uint64_t fg_store_here(const FgStore *store, uint32_t param, uint64_t *first, uint64_t most)
{
    uint64_t elements = store->program->params[param].elements;
    while (*first < elements) {
        Piece piece = {.count = elements - *first};
        if (fg_store_is_used(store, param))
            piece = piece_at(store, param, *first, elements - *first);
        if (fg_rt_group_rank(store->group, piece.rank))
            return piece.count < most ? piece.count : most;
        *first += piece.count;
    }
    return 0;
}

static const FgRtBucket *bucket_of(const FgStore *store, uint32_t param)
{
    return &store->program->buckets[store->program->params[param].bucket];
}

void fg_store_open(FgStore *out_store, const FgRtProgram *program, FgRtGroup *group)
{
    *out_store = (FgStore){.program = program, .group = group};
    out_store->unused = fg_new(program->n_params, sizeof *out_store->unused);
    for (uint32_t i = 0; i < program->n_params; i++)
        if (!fg_store_is_used(out_store, i))
            out_store->unused[i] = fg_new((size_t)program->params[i].elements, sizeof(float));
}

void fg_store_close(FgStore *store)
{
    for (uint32_t i = 0; store->unused && i < store->program->n_params; i++)
        free(store->unused[i]);
    free(store->unused);
    *store = (FgStore){0};
}

bool fg_store_ok(const FgStore *store, FgFail *fail)
{
    uint32_t first, n;
    fg_rt_group_ranks(store->group, &first, &n);
    FgRtStatus status = fg_rt_status(fg_rt_group_rank(store->group, first));
    if (status.ok)
        return true;
    if (!*status.call)
        return fg_fail(fail, "%s", status.text);
    if (status.node >= store->program->n_nodes)
        return fg_fail(fail, "rank %u, %s: %s", status.rank, status.call, status.text);
    const FgRtNode *node = &store->program->nodes[status.node];
    if (!*node->file) /* a node that no source line stands for */
        return fg_fail(fail, "rank %u, %s '%s', %s: %s", status.rank, node->op, node->name,
                       status.call, status.text);
    return fg_fail(fail, "rank %u, %s '%s' (%s:%u:%u), %s: %s", status.rank, node->op, node->name,
                   node->file, node->line, node->col, status.call, status.text);
}

bool fg_store_is_used(const FgStore *store, uint32_t param)
{
    return store->program->params[param].bucket != UINT32_MAX;
}

bool fg_store_is_trained(const FgStore *store, uint32_t param)
{
    return fg_store_is_used(store, param) && bucket_of(store, param)->trainable &&
           bucket_of(store, param)->moment1 != FG_RT_NONE;
}

bool fg_store_has_masters(const FgStore *store)
{
    for (uint32_t i = 0; i < store->program->n_buckets; i++)
        if (store->program->buckets[i].master != FG_RT_NONE)
            return true;
    return false;
}

FgRtDtype fg_store_dtype(const FgStore *store, uint32_t param)
{
    return fg_store_is_used(store, param) ? bucket_of(store, param)->dtype : FG_RT_F32;
}

/* Offset of the f32 state of a part; FG_RT_NONE when it is kept in the working copy alone. */
static uint64_t part_offset(const FgRtBucket *bucket, FgPart part)
{
    switch (part) {
    case FG_PART_WEIGHT:
        return bucket->master != FG_RT_NONE || bucket->dtype != FG_RT_F32 ? bucket->master
                                                                          : bucket->shard;
    case FG_PART_MOMENT1:
        return bucket->moment1;
    case FG_PART_MOMENT2:
        return bucket->moment2;
    }
    return FG_RT_NONE;
}

static void get_narrow(FgRtCx *cx, uint64_t offset, uint64_t count, FgRtDtype dtype, float *out)
{
    uint16_t *bits = fg_new((size_t)count, sizeof *bits);
    fg_rt_read(cx, offset, bits, (size_t)count * sizeof *bits);
    for (uint64_t i = 0; i < count; i++)
        out[i] = dtype == FG_RT_BF16 ? fg_bf16_to_f32(bits[i]) : fg_f16_to_f32(bits[i]);
    free(bits);
}

void fg_store_get(const FgStore *store, uint32_t param, FgPart part, uint64_t first, uint64_t count,
                  float *out)
{
    if (!fg_store_is_used(store, param)) {
        memcpy(out, store->unused[param] + first, (size_t)count * sizeof *out);
        return;
    }
    const FgRtBucket *bucket = bucket_of(store, param);
    uint64_t offset = part_offset(bucket, part);
    while (count) {
        Piece piece = piece_at(store, param, first, count);
        FgRtCx *cx = fg_rt_group_rank(store->group, piece.rank);
        if (offset != FG_RT_NONE)
            fg_rt_read(cx, offset + 4 * piece.at, out, (size_t)piece.count * 4);
        else
            get_narrow(cx, bucket->shard + 2 * piece.at, piece.count, bucket->dtype, out);
        out += piece.count;
        first += piece.count;
        count -= piece.count;
    }
}

static void set_narrow(FgRtCx *cx, uint64_t offset, uint64_t count, FgRtDtype dtype,
                       const float *in)
{
    uint16_t *bits = fg_new((size_t)count, sizeof *bits);
    for (uint64_t i = 0; i < count; i++)
        bits[i] = dtype == FG_RT_BF16 ? fg_f32_to_bf16(in[i]) : fg_f32_to_f16(in[i]);
    fg_rt_write(cx, offset, bits, (size_t)count * sizeof *bits);
    free(bits);
}

void fg_store_set(const FgStore *store, uint32_t param, FgPart part, uint64_t first, uint64_t count,
                  const float *in)
{
    if (!fg_store_is_used(store, param)) {
        memcpy(store->unused[param] + first, in, (size_t)count * sizeof *in);
        return;
    }
    const FgRtBucket *bucket = bucket_of(store, param);
    uint64_t offset = part_offset(bucket, part);
    while (count) {
        Piece piece = piece_at(store, param, first, count);
        FgRtCx *cx = fg_rt_group_rank(store->group, piece.rank);
        if (cx && offset != FG_RT_NONE)
            fg_rt_write(cx, offset + 4 * piece.at, in, (size_t)piece.count * 4);
        if (cx && part == FG_PART_WEIGHT && bucket->dtype != FG_RT_F32)
            set_narrow(cx, bucket->shard + 2 * piece.at, piece.count, bucket->dtype, in);
        in += piece.count;
        first += piece.count;
        count -= piece.count;
    }
}

void fg_store_get_working(const FgStore *store, uint32_t param, uint64_t first, uint64_t count,
                          void *out)
{
    size_t bytes = fg_rt_dtype_bytes(fg_store_dtype(store, param));
    unsigned char *to = out;
    if (!fg_store_is_used(store, param)) {
        memcpy(to, store->unused[param] + first, (size_t)count * bytes);
        return;
    }
    while (count) {
        Piece piece = piece_at(store, param, first, count);
        fg_rt_read(fg_rt_group_rank(store->group, piece.rank),
                   bucket_of(store, param)->shard + piece.at * bytes, to,
                   (size_t)piece.count * bytes);
        to += piece.count * bytes;
        first += piece.count;
        count -= piece.count;
    }
}
