/* One walk serves all: split a range of a parameter at the borders of the ranks' slices, and do
 * something to each piece. */
#include "runtime/trainer/store.h"

#include "runtime/host/elements.h"

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

static const FgRtBucket *bucket_of(const FgStore *store, uint32_t param)
{
    return &store->program->buckets[store->program->params[param].bucket];
}

void fg_store_open(FgStore *out_store, const FgRtProgram *program)
{
    *out_store = (FgStore){.program = program};
    out_store->memory = fg_new(program->ranks, sizeof *out_store->memory);
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
    free(store->memory);
    *store = (FgStore){0};
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

static void get_narrow(const unsigned char *from, uint64_t count, FgRtDtype dtype, float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        out[i] = dtype == FG_RT_BF16 ? fg_bf16_to_f32(bits) : fg_f16_to_f32(bits);
    }
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
        const unsigned char *memory = store->memory[piece.rank];
        if (offset != FG_RT_NONE)
            memcpy(out, memory + offset + 4 * piece.at, (size_t)piece.count * 4);
        else
            get_narrow(memory + bucket->shard + 2 * piece.at, piece.count, bucket->dtype, out);
        out += piece.count;
        first += piece.count;
        count -= piece.count;
    }
}

static void set_narrow(unsigned char *to, uint64_t count, const float *in)
{
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits = fg_f32_to_bf16(in[i]);
        memcpy(to + 2 * i, &bits, 2);
    }
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
        unsigned char *memory = store->memory[piece.rank];
        if (offset != FG_RT_NONE)
            memcpy(memory + offset + 4 * piece.at, in, (size_t)piece.count * 4);
        if (part == FG_PART_WEIGHT && bucket->dtype == FG_RT_BF16)
            set_narrow(memory + bucket->shard + 2 * piece.at, piece.count, in);
        in += piece.count;
        first += piece.count;
        count -= piece.count;
    }
}

void fg_store_get_working(const FgStore *store, uint32_t param, void *out)
{
    uint64_t first = 0, count = store->program->params[param].elements;
    size_t bytes = fg_host_dtype_bytes(fg_store_dtype(store, param));
    if (!fg_store_is_used(store, param)) {
        memcpy(out, store->unused[param], (size_t)count * bytes);
        return;
    }
    while (count) {
        Piece piece = piece_at(store, param, first, count);
        memcpy((unsigned char *)out + first * bytes,
               store->memory[piece.rank] + bucket_of(store, param)->shard + piece.at * bytes,
               (size_t)piece.count * bytes);
        first += piece.count;
        count -= piece.count;
    }
}
