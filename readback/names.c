/* See names.h. Addresses that any access begins or ends at are known before, so that the map from
 * bytes to buffers is the checker's own (check_memory.c). */
#include "readback/names.h"

#include <stdlib.h>
#include <string.h>

void fg_rb_unsafe(FgRbNames *names, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(names->arena, format, args);
    va_end(args);
    names->ok = false;
    fg_diag(names->source->diags, names->call->loc, FG_D_NOT_PROVED, "fg_rt_%s%s%s%s in @%s: %s",
            names->call->entry->name, *names->from ? " (" : "", names->from,
            *names->from ? ")" : "", names->func, text);
}

/* ---- the map ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t bound(const FgRbNames *names, uint64_t address)
{
    uint32_t lo = 0, hi = names->space.n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (names->space.bounds[mid] < address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static FgCheckSpan span_of(const FgRbNames *names, uint64_t at, uint64_t bytes)
{
    return (FgCheckSpan){bound(names, at), bound(names, at + bytes)};
}

static uint32_t held_at(const FgRbNames *names, uint32_t cell)
{
    return *(const uint32_t *)fg_check_cells_at(&names->cells, cell) - 1;
}

static void put(FgRbNames *names, uint32_t buffer)
{
    const FgTraceBuffer *it = &names->out->buffers.data[buffer];
    uint32_t *fact = fg_check_cells_merge(&names->cells, span_of(names, it->at, it->bytes));
    *fact = buffer + 1;
}

/* The first and another buffer that a range holds; FG_NO_ID: bytes that nothing has written. */
static void held_in(const FgRbNames *names, uint64_t at, uint64_t bytes, uint32_t *out_one,
                    uint32_t *out_other)
{
    FgCheckSpan span = span_of(names, at, bytes);
    uint32_t cell = fg_check_cells_find(&names->cells, span.lo);
    *out_one = *out_other = held_at(names, cell);
    for (; cell < span.hi; cell = fg_check_cells_next(&names->cells, cell))
        if (held_at(names, cell) != *out_one)
            *out_other = held_at(names, cell);
}

/* ---- buffers ---- */

static uint32_t add_buffer(FgRbNames *names, FgTraceBuffer buffer, FgRbBuffer side)
{
    buffer.id = names->out->buffers.len;
    if (buffer.root == FG_NO_ID)
        buffer.root = buffer.content = buffer.id;
    fg_vec_push(names->arena, &names->out->buffers, buffer);
    fg_vec_push(names->arena, &names->buffers, side);
    return buffer.id;
}

static const FgTraceBuffer *buffer_at(const FgRbNames *names, uint32_t id)
{
    return &names->out->buffers.data[id];
}

static bool covers(const FgTraceBuffer *buffer, uint64_t at, uint64_t bytes)
{
    return buffer->at == at && buffer->bytes == bytes;
}

/* A buffer that is the same one wherever it stands: found by root (or kind and bucket) and place.
 */
static uint32_t find_keyed(const FgRbNames *names, FgTraceKind kind, uint32_t bucket, uint32_t root,
                           uint64_t at, uint64_t bytes)
{
    for (uint32_t i = 0; i < names->keyed.len; i++) {
        uint32_t id = names->keyed.data[i];
        const FgTraceBuffer *buffer = buffer_at(names, id);
        const FgRbBuffer *side = &names->buffers.data[id];
        if (covers(buffer, at, bytes) && side->kind == kind && side->bucket == bucket &&
            (root == FG_NO_ID ? buffer->root == id : buffer->root == root))
            return id;
    }
    return FG_NO_ID;
}

static uint32_t keyed(FgRbNames *names, FgTraceBuffer buffer, FgRbBuffer side)
{
    uint32_t found =
        find_keyed(names, side.kind, side.bucket, buffer.root, buffer.at, buffer.bytes);
    if (found != FG_NO_ID)
        return found;
    uint32_t id = add_buffer(names, buffer, side);
    fg_vec_push(names->arena, &names->keyed, id);
    return id;
}

void fg_rb_names_init(FgRbNames *names, uint64_t *bounds, uint32_t n_bounds)
{
    const FgRbTables *tables = names->tables;
    uint64_t *all = FG_NEW_ARRAY(names->arena, uint64_t, n_bounds + 2 * tables->states.len + 1);
    memcpy(all, bounds, n_bounds * sizeof *bounds);
    for (uint32_t i = 0; i < tables->states.len; i++) {
        all[n_bounds++] = tables->states.data[i].at;
        all[n_bounds++] = tables->states.data[i].at + tables->states.data[i].bytes;
    }
    qsort(all, n_bounds, sizeof *all, by_number);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_bounds; i++)
        if (!n || all[n - 1] != all[i])
            all[n++] = all[i];
    names->space = (FgCheckSpace){all, n, NULL};
    fg_check_cells_init(&names->cells, names->arena, n, sizeof(uint32_t));
    for (uint32_t i = 0; i < tables->states.len; i++) {
        const FgRbState *state = &tables->states.data[i];
        uint32_t id =
            add_buffer(names,
                       (FgTraceBuffer){.name = state->name,
                                       .at = state->at,
                                       .bytes = state->bytes,
                                       .elements = state->elements,
                                       .root = FG_NO_ID,
                                       .state = true,
                                       .role = state->role,
                                       .index = state->index,
                                       .def = FG_NO_ID},
                       (FgRbBuffer){.bucket = FG_NO_ID, .home = FG_NO_ID, .dtype = state->dtype});
        if (state->bytes)
            put(names, id);
    }
}

/* The state of a role and index, or FG_NO_ID. */
static uint32_t state_of(const FgRbNames *names, FgRole role, uint32_t index)
{
    for (uint32_t i = 0; i < names->tables->states.len; i++)
        if (names->tables->states.data[i].role == role &&
            names->tables->states.data[i].index == index)
            return i; /* states are the first buffers */
    return FG_NO_ID;
}

/* The bucket's parameter that lies in exactly this part of a whole copy of it, or NULL. */
static const FgRbParam *param_in(const FgRbNames *names, uint32_t whole, uint64_t at,
                                 uint64_t bytes)
{
    const FgTraceBuffer *copy = buffer_at(names, whole);
    const FgRbBucket *bucket = &names->tables->buckets.data[names->buffers.data[whole].bucket];
    uint64_t size = copy->bytes / bucket->elements;
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        const FgRbParam *param = &names->tables->params.data[bucket->params[i]];
        if (copy->at + param->offset * size == at && param->elements * size == bytes)
            return param;
    }
    return NULL;
}

/* A part of a buffer under its own name. */
static uint32_t part(FgRbNames *names, uint32_t root, const char *name, uint64_t at, uint64_t bytes,
                     uint64_t elements, bool view)
{
    FgTraceBuffer buffer = {.name = name,
                            .at = at,
                            .bytes = bytes,
                            .elements = elements,
                            .root = root,
                            .state = buffer_at(names, root)->state,
                            .role = buffer_at(names, root)->role,
                            .def = names->node};
    uint32_t id = keyed(names, buffer, (FgRbBuffer){.bucket = FG_NO_ID, .home = FG_NO_ID});
    names->out->buffers.data[id].content = view ? root : id;
    return id;
}

/* ---- reads ---- */

static const char *range_text(FgRbNames *names, uint64_t at, uint64_t bytes)
{
    return fg_arena_printf(names->arena, "%llu..%llu", (unsigned long long)at,
                           (unsigned long long)(at + bytes));
}

static const char *name_of(FgRbNames *names, uint32_t id)
{
    return id == FG_NO_ID ? "bytes that nothing has written"
                          : fg_arena_printf(names->arena, "%s at %s", buffer_at(names, id)->name,
                                            range_text(names, buffer_at(names, id)->at,
                                                       buffer_at(names, id)->bytes));
}

/* States that may travel in parts: those of a bucket, in calls that work on parts. */
static bool is_copied(const FgRbNames *names, const FgTraceBuffer *buffer)
{
    bool parts = names->kind == FG_TRACE_STASH || names->kind == FG_TRACE_FETCH ||
                 names->kind == FG_TRACE_ADAMW_PART || names->init;
    return parts && buffer->state &&
           (buffer->role == FG_ROLE_SHARD || buffer->role == FG_ROLE_MASTER ||
            buffer->role == FG_ROLE_MOMENT1 || buffer->role == FG_ROLE_MOMENT2 ||
            buffer->role == FG_ROLE_GRAD_SHARD);
}

/* A part of such a state; which one, and that parts make a whole, is the checker's business. */
static uint32_t state_part(FgRbNames *names, uint32_t root, uint64_t at, uint64_t bytes)
{
    const FgTraceBuffer *state = buffer_at(names, root);
    uint64_t size = state->elements ? state->bytes / state->elements : 1;
    if (at < state->at || bytes > state->bytes || at - state->at > state->bytes - bytes ||
        (at - state->at) % size || bytes % size) {
        fg_rb_unsafe(names, "%s is no part of %s", range_text(names, at, bytes),
                     name_of(names, root));
        return FG_NO_ID;
    }
    return part(names, root, fg_arena_printf(names->arena, "a part of %s", state->name), at, bytes,
                bytes / size, true);
}

/* A part of one buffer that may be read by itself: a parameter of a gathered bucket, the seed. */
static uint32_t read_part(FgRbNames *names, uint32_t root, const FgRbEffect *effect)
{
    const FgTraceBuffer *buffer = buffer_at(names, root);
    uint64_t at = effect->at, bytes = effect->bytes;
    if (names->buffers.data[root].kind == FG_TRACE_GATHER) {
        const FgRbParam *param = param_in(names, root, at, bytes);
        if (param)
            return part(names, root, param->name, at, bytes, param->elements, true);
    }
    if (is_copied(names, buffer))
        return state_part(names, root, at, bytes);
    if (buffer->state && buffer->role == FG_ROLE_SCALARS && at == buffer->at && bytes == 4)
        return part(names, root, "the seed", at, bytes, 1, true); /* FG_RT_S_SEED */
    if (fg_rb_piece(names, root, effect))
        return part(names, root, fg_arena_printf(names->arena, "a piece of %s", buffer->name), at,
                    bytes, bytes, true);
    fg_rb_unsafe(names, "it reads %s, which is no whole value: it lies in %s",
                 range_text(names, at, bytes), name_of(names, root));
    return FG_NO_ID;
}

static uint32_t find_read(FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t one, other;
    const char *arg = names->call->entry->params.data[effect->arg];
    held_in(names, effect->at, effect->bytes, &one, &other);
    bool gradient = !strcmp(arg, "grad") || !strcmp(arg, "parts");
    if (gradient && names->bucket != FG_NO_ID) {
        uint32_t slice = state_of(names, FG_ROLE_GRAD_SHARD, names->bucket);
        if (slice != FG_NO_ID && covers(buffer_at(names, slice), effect->at, effect->bytes))
            return slice; /* of the step before, where the update is pending */
        if (slice != FG_NO_ID && names->kind == FG_TRACE_ADAMW_PART)
            return state_part(names, slice, effect->at, effect->bytes);
    }
    uint32_t root = one == FG_NO_ID ? FG_NO_ID : buffer_at(names, one)->root;
    if (one == FG_NO_ID || other == FG_NO_ID) {
        fg_rb_unsafe(names, "it reads %s at %s, bytes that nothing has written", arg,
                     range_text(names, effect->at, effect->bytes));
        return FG_NO_ID;
    }
    if (buffer_at(names, other)->root != root) {
        fg_rb_unsafe(names, "it reads %s at %s, which holds parts of %s and of %s", arg,
                     range_text(names, effect->at, effect->bytes), name_of(names, one),
                     name_of(names, other));
        return FG_NO_ID;
    }
    uint32_t found = FG_NO_ID;
    if (covers(buffer_at(names, root), effect->at, effect->bytes))
        found = root; /* a gradient buffer with one part too */
    else if (one == other && covers(buffer_at(names, one), effect->at, effect->bytes))
        found = one;
    else
        found = read_part(names, root, effect);
    if (found != FG_NO_ID) {
        names->buffers.data[found].reads++;
        names->buffers.data[root].reads++;
        names->buffers.data[root].ever = true;
    }
    return found;
}

uint32_t fg_rb_name_read(FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t id = find_read(names, effect);
    if (id != FG_NO_ID)
        fg_rb_type_read(names, effect, id);
    return id;
}

uint32_t fg_rb_name_release(FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t one, other;
    held_in(names, effect->at, effect->bytes, &one, &other);
    uint32_t root = one == FG_NO_ID ? FG_NO_ID : buffer_at(names, one)->root;
    bool whole = root != FG_NO_ID && other != FG_NO_ID && buffer_at(names, other)->root == root &&
                 covers(buffer_at(names, root), effect->at, effect->bytes);
    if (!whole) {
        fg_rb_unsafe(names, "it releases %s, which holds %s: not a whole value",
                     range_text(names, effect->at, effect->bytes), name_of(names, one));
        return FG_NO_ID;
    }
    if (buffer_at(names, root)->state) {
        fg_rb_unsafe(names, "it releases %s, which lives from step to step", name_of(names, root));
        return FG_NO_ID;
    }
    if (!names->buffers.data[root].reads)
        fg_rb_unsafe(names, "it releases %s, which nothing has read", name_of(names, root));
    return root;
}

/* ---- writes ---- */

static uint32_t write_state(FgRbNames *names, const FgRbEffect *effect, const char *arg)
{
    uint32_t one, other;
    held_in(names, effect->at, effect->bytes, &one, &other);
    if (one != FG_NO_ID && one == other && covers(buffer_at(names, one), effect->at, effect->bytes))
        return one;
    if (one != FG_NO_ID && one == other && is_copied(names, buffer_at(names, one)))
        return state_part(names, one, effect->at, effect->bytes);
    if (one != FG_NO_ID || other != FG_NO_ID) {
        fg_rb_unsafe(names, "it writes %s at %s, which is not exactly %s", arg,
                     range_text(names, effect->at, effect->bytes),
                     name_of(names, one != FG_NO_ID ? one : other));
        return FG_NO_ID;
    }
    if (!names->init) {
        fg_rb_unsafe(names, "it writes %s at %s, where no state lies", arg,
                     range_text(names, effect->at, effect->bytes));
        return FG_NO_ID;
    }
    return add_buffer(names,
                      (FgTraceBuffer){.name = fg_arena_printf(names->arena, "the constant %s", arg),
                                      .at = effect->at,
                                      .bytes = effect->bytes,
                                      .elements = effect->bytes,
                                      .root = FG_NO_ID,
                                      .state = true,
                                      .role = FG_ROLE_TABLE,
                                      .def = FG_NO_ID},
                      (FgRbBuffer){.bucket = FG_NO_ID, .home = FG_NO_ID});
}

/* A whole copy of a bucket: what a gather makes, or a flat gradient buffer. */
static uint32_t write_copy(FgRbNames *names, const FgRbEffect *effect)
{
    const FgRbBucket *bucket = &names->tables->buckets.data[names->bucket];
    bool gathered = names->kind == FG_TRACE_GATHER;
    if (effect->bytes % bucket->elements) {
        fg_rb_unsafe(names, "it makes a copy of %llu bytes of bucket %s, which has %llu elements",
                     (unsigned long long)effect->bytes, bucket->name,
                     (unsigned long long)bucket->elements);
        return FG_NO_ID;
    }
    FgTraceBuffer buffer = {
        .name = fg_arena_printf(names->arena, "%s %s",
                                gathered ? "the gathered bucket" : "the gradient buffer of",
                                bucket->name),
        .at = effect->at,
        .bytes = effect->bytes,
        .elements = bucket->elements,
        .root = FG_NO_ID,
        .def = names->node};
    uint32_t id =
        keyed(names, buffer,
              (FgRbBuffer){.kind = names->kind, .bucket = names->bucket, .home = FG_NO_ID});
    names->buffers.data[id].reads = 0;
    names->buffers.data[id].open = !gathered;
    return id;
}

/* The open gradient buffer that the range lies in, or FG_NO_ID. */
static uint32_t open_around(const FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t one, other;
    held_in(names, effect->at, effect->bytes, &one, &other);
    if (one == FG_NO_ID || other == FG_NO_ID)
        return FG_NO_ID;
    uint32_t root = buffer_at(names, one)->root;
    return root == buffer_at(names, other)->root && names->buffers.data[root].open ? root
                                                                                   : FG_NO_ID;
}

static uint32_t write_slice(FgRbNames *names, const FgRbEffect *effect, uint32_t root)
{
    const FgRbParam *param = param_in(names, root, effect->at, effect->bytes);
    if (!param) {
        fg_rb_unsafe(names, "it writes %s into %s, where no parameter lies",
                     range_text(names, effect->at, effect->bytes), name_of(names, root));
        return FG_NO_ID;
    }
    return part(names, root, fg_arena_printf(names->arena, "the gradient of %s", param->name),
                effect->at, effect->bytes, param->elements, false);
}

static uint32_t write_workspace(FgRbNames *names, const FgRbEffect *effect)
{
    FgTraceBuffer buffer = {.name = "the workspace",
                            .at = effect->at,
                            .bytes = effect->bytes,
                            .elements = effect->bytes,
                            .root = FG_NO_ID,
                            .state = true,
                            .role = FG_ROLE_WORKSPACE,
                            .def = FG_NO_ID};
    return keyed(names, buffer, (FgRbBuffer){.bucket = FG_NO_ID, .home = FG_NO_ID});
}

static uint32_t write_value(FgRbNames *names, const FgRbEffect *effect, const char *arg)
{
    const char *from = *names->from ? names->from : names->call->entry->name;
    return add_buffer(names,
                      (FgTraceBuffer){.name = fg_arena_printf(names->arena, "%s of %s", arg, from),
                                      .at = effect->at,
                                      .bytes = effect->bytes,
                                      .elements = effect->bytes,
                                      .root = FG_NO_ID,
                                      .def = names->node},
                      (FgRbBuffer){.bucket = FG_NO_ID, .home = FG_NO_ID});
}

/* The reduced slice of the bucket whose gradient buffer the call reduces, or whose rows it adds. */
static uint32_t write_reduced(FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t slice =
        names->bucket == FG_NO_ID ? FG_NO_ID : state_of(names, FG_ROLE_GRAD_SHARD, names->bucket);
    if (slice != FG_NO_ID && covers(buffer_at(names, slice), effect->at, effect->bytes))
        return slice;
    fg_rb_unsafe(
        names, "it reduces into %s, which is not the gradient slice of the bucket that it reduces",
        range_text(names, effect->at, effect->bytes));
    return FG_NO_ID;
}

uint32_t fg_rb_name_write(FgRbNames *names, const FgRbEffect *effect)
{
    const char *arg = names->call->entry->params.data[effect->arg];
    uint32_t id, around = FG_NO_ID;
    if (effect->scratch)
        return write_workspace(names, effect);
    if (names->kind == FG_TRACE_GATHER || names->kind == FG_TRACE_GRAD_BUFFER)
        id = write_copy(names, effect);
    else if (names->kind == FG_TRACE_REDUCE_SCATTER || names->kind == FG_TRACE_ALL_TO_ALL ||
             names->kind == FG_TRACE_LOOKUP_DW || names->kind == FG_TRACE_VOCAB_DW)
        id = write_reduced(names, effect);
    else if (effect->at < names->tables->state_bytes ||
             (effect->at >= FG_HOST_BASE &&
              effect->at - FG_HOST_BASE < names->tables->host_state_bytes))
        id = write_state(names, effect, arg);
    else if ((around = open_around(names, effect)) != FG_NO_ID)
        id = write_slice(names, effect, around);
    else if (effect->kind == FG_RB_UPDATE)
        id = fg_rb_name_read(names, effect);
    else
        id = write_value(names, effect, arg);
    if (id == FG_NO_ID)
        return id;
    fg_rb_type_write(names, effect, id);
    put(names, is_copied(names, buffer_at(names, buffer_at(names, id)->root))
                   ? buffer_at(names, id)->root
                   : id);
    return id;
}
