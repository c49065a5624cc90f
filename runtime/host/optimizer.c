/* What happens to a bucket's gradient: zeroed gaps, the exact norm, clipping, AdamW on the owned
 * slice.
 *
 * A rank owns a slice of a bucket and that slice holds pieces of parameters with gaps between them.
 * Calls walk the pieces: the bucket's parameters, cut to the slice. */
#include <inttypes.h>
#include <math.h>

#include "runtime/host/elements.h"
#include "runtime/host/exact.h"
#include "runtime/host/kernels.h"
#include "runtime/loss_scale.h"

/* The n-th parameter of a bucket, as elements [begin, end) of this rank's slice; empty when it lies
 * elsewhere. */
typedef struct Piece {
    const FgRtParam *param;
    uint64_t begin, end;
} Piece;

static Piece slice_piece(const FgRtCx *cx, const FgRtBucket *bucket, uint32_t n, uint64_t elements)
{
    const FgRtProgram *program = cx->program;
    const FgRtParam *param = &program->params[program->bucket_params[bucket->params_first + n]];
    uint64_t from = cx->rank * elements, to = from + elements;
    uint64_t begin = param->offset > from ? param->offset : from;
    uint64_t end = fg_min(param->offset + param->elements, to);
    return begin < end ? (Piece){param, begin - from, end - from} : (Piece){param, 0, 0};
}

static const FgRtBucket *find_bucket(FgRtCx *cx, uint64_t index, uint64_t elements, uint64_t parts)
{
    const FgRtProgram *program = cx->program;
    if (index < program->n_buckets && program->buckets[index].elements == elements * parts)
        return &program->buckets[index];
    fg_rt_raise(cx, "bucket %" PRIu64 " with %" PRIu64 " elements is not in the program's table",
                index, elements * parts);
    return NULL;
}

void fg_host_grad_buffer(FgRtCx *cx, uint64_t buffer, uint64_t bucket, uint64_t elements,
                         uint64_t wire)
{
    const FgRtBucket *info = find_bucket(cx, bucket, elements, 1);
    if (!info)
        return;
    uint64_t size = fg_rt_dtype_bytes(wire), at = 0;
    for (uint32_t i = 0; i < info->n_params; i++) {
        const FgRtParam *param =
            &cx->program->params[cx->program->bucket_params[info->params_first + i]];
        memset(fg_at(cx, buffer + at * size), 0, (param->offset - at) * size);
        at = param->offset + param->elements;
    }
    memset(fg_at(cx, buffer + at * size), 0, (elements - at) * size);
}

/* Where a gradient lies: the owned slice, summed, or the parts of it that the ranks have to give,
 * one after the other. */
typedef struct Grad {
    const void *at;
    uint64_t dt, n_parts, part; /* elements of a part */
} Grad;

static Grad summed(const FgRtCx *cx, uint64_t grad, uint64_t dt)
{
    return (Grad){fg_at(cx, grad), dt, 1, 0};
}

/* Elements at .. at + n as f32: of parts their sum in rank order, rounded to their dtype. All
 * arrays have room for a chunk. */
static const float *grad_chunk(const Grad *grad, uint64_t at, uint64_t n, float *scratch,
                               float *sum)
{
    const float *values = fg_load(grad->at, grad->dt, at, n, scratch);
    if (grad->n_parts == 1)
        return values;
    memcpy(sum, values, n * sizeof *sum);
    for (uint64_t p = 1; p < grad->n_parts; p++) {
        const float *part = fg_load(grad->at, grad->dt, p * grad->part + at, n, scratch);
        for (uint64_t i = 0; i < n; i++)
            sum[i] += part[i];
    }
    if (grad->dt == FG_RT_F32)
        return sum;
    uint16_t rounded[FG_CHUNK];
    fg_store(rounded, grad->dt, 0, n, sum);
    return fg_load(rounded, grad->dt, 0, n, scratch);
}

static void norm_add(FgRtCx *cx, const FgRtBucket *info, const Grad *grad, uint64_t norm,
                     uint64_t elements, bool accumulate)
{
    int64_t *limbs = fg_at(cx, norm);
    if (!accumulate)
        memset(limbs, 0, FG_RT_NORM_LIMBS * sizeof *limbs);
    float scratch[FG_CHUNK], sum[FG_CHUNK];
    for (uint32_t i = 0; i < info->n_params; i++) {
        Piece piece = slice_piece(cx, info, i, elements);
        for (uint64_t at = piece.begin; at < piece.end; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, piece.end - at);
            fg_exact_add_squares(limbs, grad_chunk(grad, at, n, scratch, sum), n);
        }
    }
}

void fg_host_norm_add(FgRtCx *cx, uint64_t grad, uint64_t norm, uint64_t bucket, uint64_t elements,
                      uint64_t dt, uint64_t accumulate)
{
    const FgRtBucket *info = find_bucket(cx, bucket, elements, cx->program->ranks);
    Grad from = summed(cx, grad, dt);
    if (info)
        norm_add(cx, info, &from, norm, elements, accumulate != 0);
}

void fg_host_clip_factor(FgRtCx *cx, uint64_t norm, uint64_t scalars, double clip)
{
    float *current = (float *)fg_at(cx, scalars) + (size_t)FG_RT_CURRENT * FG_RT_SET;
    double length = sqrt(fg_exact_value(fg_at(cx, norm)));
    double factor = clip > 0 ? clip / (length + 1e-6) : 1.0;
    current[FG_RT_S_NORM] = (float)length;
    current[FG_RT_S_FACTOR] = (float)(factor > 1.0 ? 1.0 : factor);
}

void fg_host_loss_scale(FgRtCx *cx, uint64_t scaler, uint64_t scalars)
{
    float *current = (float *)fg_at(cx, scalars) + (size_t)FG_RT_CURRENT * FG_RT_SET;
    current[FG_RT_S_SEED] *= (float)((const double *)fg_at(cx, scaler))[FG_RT_L_SCALE];
}

void fg_host_scale_step(FgRtCx *cx, uint64_t norm, uint64_t scalars, uint64_t scaler, uint64_t loss,
                        double clip)
{
    fg_scale_step(sqrt(fg_exact_value(fg_at(cx, norm))), clip,
                  (float *)fg_at(cx, scalars) + (size_t)FG_RT_CURRENT * FG_RT_SET,
                  fg_at(cx, scaler), fg_at(cx, loss));
}

/* The bucket whose owned slice has elements first .. first + elements. */
static const FgRtBucket *find_part(FgRtCx *cx, uint64_t index, uint64_t first, uint64_t elements)
{
    const FgRtProgram *program = cx->program;
    uint64_t slice =
        index < program->n_buckets ? program->buckets[index].elements / program->ranks : 0;
    if (first <= slice && elements <= slice - first)
        return &program->buckets[index];
    fg_rt_raise(cx, "elements %" PRIu64 " to %" PRIu64 " are not in the slice of bucket %" PRIu64,
                first, first + elements, index);
    return NULL;
}

/* rate is corrected for the first moment, root for the second: lr / (1 - beta1^t) and
 * 1 / sqrt(1 - beta2^t). An element then takes one division, which is what it costs most of. */
typedef struct AdamW {
    float factor, beta1, rest1, beta2, rest2, rate, root, eps, keep;
} AdamW;

static AdamW adamw_scalars(const FgRtCx *cx, const float *set)
{
    return (AdamW){
        .factor = cx->program->clip > 0 || cx->program->scales_loss ? set[FG_RT_S_FACTOR] : 1.0f,
        .beta1 = set[FG_RT_S_BETA1],
        .rest1 = 1.0f - set[FG_RT_S_BETA1],
        .beta2 = set[FG_RT_S_BETA2],
        .rest2 = 1.0f - set[FG_RT_S_BETA2],
        .rate = set[FG_RT_S_LR] / set[FG_RT_S_CORRECT1],
        .root = 1.0f / sqrtf(set[FG_RT_S_CORRECT2]),
        .eps = set[FG_RT_S_EPS],
    };
}

/* One chunk, all in f32. */
static void adamw_chunk(const AdamW *s, const float *grad, float *w, float *m, float *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float g = grad[i] * s->factor;
        m[i] = s->beta1 * m[i] + s->rest1 * g;
        v[i] = s->beta2 * v[i] + s->rest2 * g * g;
        w[i] = w[i] * s->keep - s->rate * (m[i] / (sqrtf(v[i]) * s->root + s->eps));
    }
}

/* The states of an update: elements `first` to first + elements of the owned slice. */
typedef struct States {
    uint64_t master, moment1, moment2, shard, dt, first, elements;
} States;

static void update(FgRtCx *cx, const FgRtBucket *info, const Grad *grad, const States *states,
                   const float *set)
{
    if (set[FG_RT_S_VALID] == 0)
        return;
    if (states->master == FG_RT_NONE && states->dt != FG_RT_F32) {
        fg_rt_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    float *w = fg_at(cx, states->master == FG_RT_NONE ? states->shard : states->master);
    float *m = fg_at(cx, states->moment1), *v = fg_at(cx, states->moment2);
    float scratch[FG_CHUNK], sum[FG_CHUNK];
    uint64_t first = states->first;
    AdamW s = adamw_scalars(cx, set);
    for (uint32_t i = 0; i < info->n_params; i++) {
        Piece piece = slice_piece(cx, info, i, info->elements / cx->program->ranks);
        s.keep = piece.param->decay ? 1.0f - set[FG_RT_S_LR] * set[FG_RT_S_DECAY] : 1.0f;
        uint64_t begin = piece.begin > first ? piece.begin - first : 0; /* in the part */
        uint64_t end = piece.end > first ? fg_min(piece.end - first, states->elements) : 0;
        for (uint64_t at = begin; at < end; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, end - at);
            adamw_chunk(&s, grad_chunk(grad, at, n, scratch, sum), w + at, m + at, v + at, n);
            fg_store(fg_at(cx, states->shard), states->dt, at, n, w + at);
        }
    }
}

static const float *set_at(const FgRtCx *cx, uint64_t scalars, uint64_t set)
{
    return (const float *)fg_at(cx, scalars) + set * FG_RT_SET;
}

void fg_host_adamw_part(FgRtCx *cx, uint64_t grad, uint64_t master, uint64_t moment1,
                        uint64_t moment2, uint64_t shard, uint64_t scalars, uint64_t bucket,
                        uint64_t first, uint64_t elements, uint64_t grad_dt, uint64_t dt,
                        uint64_t set)
{
    const FgRtBucket *info = find_part(cx, bucket, first, elements);
    Grad from = summed(cx, grad, grad_dt);
    States states = {master, moment1, moment2, shard, dt, first, elements};
    if (info)
        update(cx, info, &from, &states, set_at(cx, scalars, set));
}

void fg_host_adamw(FgRtCx *cx, uint64_t grad, uint64_t master, uint64_t moment1, uint64_t moment2,
                   uint64_t shard, uint64_t norm, uint64_t scalars, uint64_t bucket,
                   uint64_t elements, uint64_t grad_dt, uint64_t dt, uint64_t set)
{
    const FgRtBucket *info = find_bucket(cx, bucket, elements, cx->program->ranks);
    Grad from = summed(cx, grad, grad_dt);
    States states = {master, moment1, moment2, shard, dt, 0, elements};
    const float *values = set_at(cx, scalars, set);
    if (!info)
        return;
    if (norm != FG_RT_NONE && values[FG_RT_S_VALID] != 0)
        norm_add(cx, info, &from, norm, elements, true);
    update(cx, info, &from, &states, values);
}

void fg_host_adamw_parts(FgRtCx *cx, uint64_t parts, uint64_t master, uint64_t moment1,
                         uint64_t moment2, uint64_t shard, uint64_t norm, uint64_t scalars,
                         uint64_t bucket, uint64_t elements, uint64_t part_dt, uint64_t dt,
                         uint64_t adds)
{
    const FgRtBucket *info = find_bucket(cx, bucket, elements, cx->program->ranks);
    Grad from = {fg_at(cx, parts), part_dt, cx->program->ranks, elements};
    States states = {master, moment1, moment2, shard, dt, 0, elements};
    if (!info)
        return;
    const float *values = set_at(cx, scalars, FG_RT_CURRENT);
    if (norm != FG_RT_NONE && !adds)
        memset(fg_at(cx, norm), 0, FG_RT_NORM_LIMBS * sizeof(int64_t));
    if (norm != FG_RT_NONE && values[FG_RT_S_VALID] != 0)
        norm_add(cx, info, &from, norm, elements, true);
    update(cx, info, &from, &states, values);
}

/* ---- AdamW of the rows that a set names, or of all other elements ---- */

typedef struct Rows {
    const uint32_t *set;
    uint64_t shift; /* from an element of the slice to one of the table, mod 2^64 */
    uint64_t hidden, vocab;
} Rows;

/* The end of the run of elements from `at` on that are named or not together, at most `end`. */
static uint64_t run_from(const Rows *rows, uint64_t at, uint64_t end, bool *out_named)
{
    uint64_t element = at + rows->shift, row = element / rows->hidden;
    if (row >= rows->vocab) { /* behind the table, or before it, where 2^64 is not far */
        *out_named = false;
        uint64_t before = 0 - element;
        return before < end - at ? at + before : end;
    }
    *out_named = rows->set[row / 32] >> row % 32 & 1;
    return fg_min(end, at + rows->hidden - element % rows->hidden);
}

void fg_host_adamw_rows(FgRtCx *cx, uint64_t grad, uint64_t master, uint64_t moment1,
                        uint64_t moment2, uint64_t shard, uint64_t norm, uint64_t scalars,
                        uint64_t set, uint64_t bucket, uint64_t table, uint64_t hidden,
                        uint64_t vocab, uint64_t words, uint64_t elements, uint64_t grad_dt,
                        uint64_t dt, uint64_t named)
{
    (void)words;
    const FgRtBucket *info = find_bucket(cx, bucket, elements, cx->program->ranks);
    const float *values = (const float *)fg_at(cx, scalars) + (size_t)FG_RT_CURRENT * FG_RT_SET;
    if (!info || values[FG_RT_S_VALID] == 0)
        return;
    if (master == FG_RT_NONE && dt != FG_RT_F32) {
        fg_rt_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    Rows rows = {fg_at(cx, set), cx->rank * elements - table, hidden, vocab};
    float *w = fg_at(cx, master == FG_RT_NONE ? shard : master);
    float *m = fg_at(cx, moment1), *v = fg_at(cx, moment2);
    float scratch[FG_CHUNK], zeros[FG_CHUNK] = {0};
    AdamW s = adamw_scalars(cx, values);
    for (uint32_t i = 0; i < info->n_params; i++) {
        Piece piece = slice_piece(cx, info, i, elements);
        s.keep = piece.param->decay ? 1.0f - values[FG_RT_S_LR] * values[FG_RT_S_DECAY] : 1.0f;
        for (uint64_t at = piece.begin, end; at < piece.end; at = end) {
            bool is_named;
            end = run_from(&rows, at, fg_min(piece.end, at + FG_CHUNK), &is_named);
            if (is_named != (named != 0))
                continue;
            const float *g = grad == FG_RT_NONE
                                 ? zeros
                                 : fg_load(fg_at(cx, grad), grad_dt, at, end - at, scratch);
            if (norm != FG_RT_NONE)
                fg_exact_add_squares(fg_at(cx, norm), g, end - at);
            adamw_chunk(&s, g, w + at, m + at, v + at, end - at);
            fg_store(fg_at(cx, shard), dt, at, end - at, w + at);
        }
    }
}
