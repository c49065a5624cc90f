/* The rules of host memory.
 *
 * Only copies touch it: a stash writes it from the device, a fetch reads it. A state that lies
 * there is updated in a copy: what was fetched of it goes back to exactly the place that it came
 * from, before anybody fetches that place again and before the function ends. An update in parts
 * covers the owned slice once, in order; the bucket's weights are new when the last part is done,
 * and of no version before that. A copy of weights is as old as its fetch.
 */
#include "passes/check_internal.h"

#include <string.h>

enum { R_SIDE = 54, R_COPY, R_DIRTY, R_PART, R_FIRST };

/* ---- who touches it ---- */

static bool on_host(const FgTrace *trace, uint32_t buffer)
{
    uint64_t at = trace->buffers.data[buffer].at;
    return at != FG_NO_OFFSET && at >= FG_HOST_BASE;
}

void fg_check_sides(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    for (uint32_t i = 0; i < trace->nodes.len; i++) {
        const FgTraceNode *node = &trace->nodes.data[i];
        if (check->position[i] == FG_CHECK_NONE || node->kind == FG_TRACE_VIEW ||
            node->kind == FG_TRACE_HOLD)
            continue;
        for (uint32_t k = 0; k < node->n_accesses; k++) {
            const FgTraceAccess *access = &node->accesses[k];
            bool may = access->write ? node->kind == FG_TRACE_STASH : node->kind == FG_TRACE_FETCH;
            if (on_host(trace, access->buffer) == may)
                continue;
            fg_check_fail(check, node, R_SIDE, "it %s %s, which lies in %s memory",
                          access->write ? "writes" : "reads",
                          fg_check_value_text(check, access->buffer), may ? "device" : "host");
        }
    }
}

/* ---- copies ---- */

/* The state that a buffer is a part of, or was fetched from; false for any other buffer. */
static bool find_home(const FgCheckWalk *walk, uint32_t buffer, uint32_t *out_state,
                      uint64_t *out_at)
{
    uint32_t root = walk->check->root[buffer];
    *out_state = fg_check_buffer(walk, root)->state ? root : walk->origin[buffer].state;
    *out_at = fg_check_buffer(walk, root)->state
                  ? fg_check_buffer(walk, buffer)->at - fg_check_buffer(walk, root)->at
                  : walk->origin[buffer].at;
    return *out_state != FG_NO_ID;
}

static bool sizes_agree(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (fg_check_buffer(walk, node->operands[0])->bytes ==
        fg_check_buffer(walk, node->results[0])->bytes)
        return true;
    fg_check_fail(walk->check, node, R_COPY, "%s and %s differ in size",
                  fg_check_text(walk, node->operands[0]), fg_check_text(walk, node->results[0]));
    return false;
}

/* A part of a state that is newer in a copy on the device must not be read at home. */
static void check_home(FgCheckWalk *walk, const FgTraceNode *node, uint32_t state, uint64_t at,
                       uint64_t bytes)
{
    for (uint32_t i = 0; i < walk->dirty.len; i++) {
        uint32_t copy = walk->dirty.data[i];
        const FgCheckOrigin *origin = &walk->origin[copy];
        if (origin->state == state && origin->at < at + bytes &&
            at < origin->at + fg_check_buffer(walk, copy)->bytes)
            fg_check_fail(walk->check, node, R_DIRTY,
                          "it fetches %s, of which %s is newer; stash that first",
                          fg_check_text(walk, node->operands[0]), fg_check_text(walk, copy));
    }
}

static bool is_dirty(const FgCheckWalk *walk, uint32_t buffer, uint32_t *out_index)
{
    for (*out_index = 0; *out_index < walk->dirty.len; ++*out_index)
        if (walk->dirty.data[*out_index] == buffer)
            return true;
    return false;
}

static void mark_dirty(FgCheckWalk *walk, uint32_t buffer)
{
    uint32_t index;
    if (!is_dirty(walk, buffer, &index))
        fg_vec_push(walk->check->arena, &walk->dirty, buffer);
}

void fg_check_fetch(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t from = node->operands[0], to = node->results[0], index;
    uint32_t root = walk->check->root[from];
    if (!sizes_agree(walk, node))
        return;
    if (is_dirty(walk, to, &index))
        fg_check_fail(walk->check, node, R_DIRTY,
                      "it fetches into %s, whose update was not stashed", fg_check_text(walk, to));
    walk->origin[to] = (FgCheckOrigin){.state = FG_NO_ID};
    if (!fg_check_buffer(walk, root)->state)
        return;
    uint64_t at = fg_check_buffer(walk, from)->at - fg_check_buffer(walk, root)->at;
    check_home(walk, node, root, at, fg_check_buffer(walk, from)->bytes);
    uint32_t bucket = fg_check_buffer(walk, root)->index;
    bool of_bucket = bucket < walk->trace->buckets.len;
    walk->origin[to] = (FgCheckOrigin){root, at, of_bucket ? walk->buckets[bucket].version : 0,
                                       of_bucket && fg_check_is_mixed(walk, bucket)};
}

/* Bytes of an element of a bucket's state. */
static uint64_t element_bytes(const FgCheckWalk *walk, uint32_t state)
{
    const FgTraceBuffer *it = fg_check_buffer(walk, state);
    return it->elements ? it->bytes / it->elements : 0;
}

/* The operand that is a part of a bucket's master, or was fetched from it; FG_NO_ID: none. */
static uint32_t master_of(const FgCheckWalk *walk, const FgTraceNode *node, uint32_t *out_state,
                          uint64_t *out_at)
{
    for (uint32_t i = 0; i < node->n_operands; i++)
        if (node->operands[i] != FG_NO_ID &&
            find_home(walk, node->operands[i], out_state, out_at) &&
            fg_check_buffer(walk, *out_state)->role == FG_ROLE_MASTER)
            return node->operands[i];
    return FG_NO_ID;
}

void fg_check_first_copy(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t state = FG_NO_ID, to = node->n_results ? node->results[0] : FG_NO_ID;
    uint64_t at = 0;
    if (!walk->start || to == FG_NO_ID)
        return;
    const FgTraceBuffer *root = fg_check_buffer(walk, walk->check->root[to]);
    uint32_t from = master_of(walk, node, &state, &at);
    bool writes = root->state && root->role == FG_ROLE_SHARD;
    if (from == FG_NO_ID && !writes)
        return;
    uint32_t index = writes ? root->index : fg_check_buffer(walk, state)->index;
    const FgTraceBucket *bucket =
        index < walk->trace->buckets.len ? &walk->trace->buckets.data[index] : NULL;
    uint64_t wide = from == FG_NO_ID ? 0 : element_bytes(walk, state);
    uint64_t narrow = bucket && wide ? element_bytes(walk, bucket->shard) : 0;
    bool same =
        narrow && state == bucket->master &&
        fg_check_buffer(walk, from)->bytes / wide * narrow == fg_check_buffer(walk, to)->bytes;
    if (!same || (writes && fg_check_buffer(walk, to)->at - root->at != at / wide * narrow))
        fg_check_fail(walk->check, node, R_FIRST,
                      "it makes %s from what is not the same part of the bucket's master",
                      fg_check_text(walk, to));
    else if (!writes) {
        walk->origin[to] = (FgCheckOrigin){bucket->shard, at / wide * narrow, 0, false};
        mark_dirty(walk, to);
    }
}

void fg_check_stash(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t from = node->operands[0], to = node->results[0], index;
    uint32_t root = walk->check->root[to];
    const FgCheckOrigin *origin = &walk->origin[from];
    if (!sizes_agree(walk, node) || !fg_check_buffer(walk, root)->state)
        return;
    uint64_t at = fg_check_buffer(walk, to)->at - fg_check_buffer(walk, root)->at;
    if (origin->state != root || origin->at != at)
        fg_check_fail(walk->check, node, R_COPY,
                      "it stashes %s into %s, where it did not come from",
                      fg_check_text(walk, from), fg_check_text(walk, to));
    else if (!is_dirty(walk, from, &index))
        fg_check_fail(walk->check, node, R_COPY,
                      "it stashes %s, which is no newer than what lies in %s",
                      fg_check_text(walk, from), fg_check_text(walk, to));
    else
        walk->dirty.data[index] = walk->dirty.data[--walk->dirty.len];
}

bool fg_check_is_shard(const FgCheckWalk *walk, uint32_t buffer, const FgTraceBucket *bucket,
                       uint32_t version)
{
    const FgCheckOrigin *origin = &walk->origin[buffer];
    return buffer == bucket->shard ||
           (origin->state == bucket->shard && origin->at == 0 && origin->version == version &&
            !origin->mixed &&
            fg_check_buffer(walk, buffer)->bytes == fg_check_buffer(walk, bucket->shard)->bytes);
}

void fg_check_copies_end(FgCheckWalk *walk, const FgTraceFunc *func)
{
    for (uint32_t i = 0; i < walk->dirty.len; i++)
        fg_check_fail_module(walk->check, "@%s never stashes %s, which an update has written",
                             func->name, fg_check_text(walk, walk->dirty.data[i]));
    walk->dirty.len = 0;
}

/* ---- updates in parts ---- */

/* Is the buffer the part of a state that begins at element `first`, or a copy of it? */
static bool is_part(const FgCheckWalk *walk, uint32_t buffer, uint32_t want, uint64_t first,
                    uint64_t n)
{
    uint32_t state;
    uint64_t at, elements = fg_check_buffer(walk, want)->elements;
    uint64_t size = elements ? fg_check_buffer(walk, want)->bytes / elements : 0;
    return find_home(walk, buffer, &state, &at) && state == want && at == first * size &&
           fg_check_buffer(walk, buffer)->bytes == n * size;
}

static void check_part_states(FgCheckWalk *walk, const FgTraceNode *node,
                              const FgTraceBucket *bucket, uint64_t n)
{
    const uint32_t want[] = {bucket->master, bucket->moment1, bucket->moment2, bucket->shard};
    for (uint32_t i = 0; i < 4 && i < node->n_results; i++) {
        uint32_t id = node->results[i];
        bool ok = id == FG_NO_ID || want[i] == FG_NO_ID
                      ? id == want[i]
                      : is_part(walk, id, want[i], node->first, n);
        if (!ok)
            fg_check_fail(walk->check, node, R_PART,
                          "its result %u is not elements %llu..%llu of the state of bucket %s", i,
                          (unsigned long long)node->first, (unsigned long long)(node->first + n),
                          bucket->name);
        else if (id != FG_NO_ID && !fg_check_buffer(walk, walk->check->root[id])->state)
            mark_dirty(walk, id);
    }
}

bool fg_check_adamw_part(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket)
{
    FgCheck *check = walk->check;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    uint64_t slice = bucket->elements / walk->trace->ranks;
    uint32_t grad = node->operands[0];
    uint64_t size = bucket->grad_shard == FG_NO_ID
                        ? 0
                        : fg_check_buffer(walk, bucket->grad_shard)->bytes / (slice ? slice : 1);
    uint64_t n = size ? fg_check_buffer(walk, grad)->bytes / size : 0;
    if (node->first != state->parted)
        fg_check_fail(check, node, R_PART,
                      "it updates elements of bucket %s from %llu on; the next are those from %llu "
                      "on",
                      bucket->name, (unsigned long long)node->first,
                      (unsigned long long)state->parted);
    if (state->parted > 0 && node->pending != state->pending)
        fg_check_fail(
            check, node, R_PART,
            "it updates a part of bucket %s with the scalars of another step than the part "
            "before",
            bucket->name);
    state->pending = node->pending;
    if (n == 0 || n > slice - state->parted)
        fg_check_fail(check, node, R_PART, "it updates more than the slice of bucket %s",
                      bucket->name);
    if (!fg_check_skipped(walk, node) &&
        fg_check_buffer(walk, grad)->at !=
            fg_check_buffer(walk, check->content[grad])->at + node->first * size)
        fg_check_fail(check, node, R_PART, "%s is another part of the gradient than it updates",
                      fg_check_text(walk, grad));
    check_part_states(walk, node, bucket, n);
    state->parted += n;
    if (state->parted < slice)
        return false;
    state->parted = 0;
    return true;
}
