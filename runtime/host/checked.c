/* Checked mode.
 *
 * Order: every stream has a vector clock, advanced by its calls, carried by events and joins. An
 * access is ordered before a call when the call's stream knows the access's tick. Two accesses to a
 * byte, one of them a write, must be ordered; so must two uses of a communicator. Contents: a read
 * must find bytes that were written, not released since, not a workspace's rest, and not torn
 * (written partly by a call that does not belong to what is read). Effects: a call's results are
 * poisoned before it runs, so that nothing can depend on what they held; and, in small memories, a
 * copy of everything shows whether a call wrote where it did not say. */
#include "runtime/host/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/host/effects.h"
#include "runtime/host/elements.h"
#include "runtime/host/shadow.h"

#define POISON 0xff /* a NaN in every float format */
#define GUARD_BYTES ((uint64_t)8 << 20)
#define N_COMMS 3
#define MARGIN ((uint64_t)4096)

typedef struct Clock {
    uint64_t ticks[FG_RT_N_STREAMS];
} Clock;

typedef struct Event {
    bool recorded;
    Clock clock;
} Event;

struct FgChecked {
    FgRtCx *cx;
    FgShadow shadow;
    Clock clocks[FG_RT_N_STREAMS];
    Event *events; /* by number */
    FgAccess comms[N_COMMS];
    FgEffect *effects; /* of the call being made */
    int32_t n_effects;
    uint32_t effects_room;
    uint64_t around; /* hash of what a custom function must leave as it is; large memories alone */
    uint8_t *guard;  /* a copy of the memory; NULL when it is large */
};

/* ---- life ---- */

static uint32_t most_effects(void)
{
    static const char *const texts[] = {
#define FG_RT_CALL(name, effects, params, args) effects,
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs) effects,
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F
    };
    uint32_t most = 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint32_t count = fg_effects_count(texts[i]);
        most = count > most ? count : most;
    }
    return most;
}

/* The driver's memory: states, and the gradients of an update that is pending from before the first
 * step (which the update skips, but declares to read). */
static bool mark_driver_memory(FgChecked *checked, const FgRtProgram *program)
{
    FgAccess driver = {.call = "the driver", .node = UINT32_MAX};
    uint64_t host = checked->cx->host_at;
    bool ok = !program->state_bytes || fg_shadow_write(&checked->shadow, 0, program->state_bytes,
                                                       FG_SEGMENT_WRITTEN, driver);
    ok = ok && (!program->host_state_bytes ||
                fg_shadow_write(&checked->shadow, host, host + program->host_state_bytes,
                                FG_SEGMENT_WRITTEN, driver));
    for (uint32_t b = 0; program->flush && b < program->n_buckets; b++) {
        const FgRtBucket *bucket = &program->buckets[b];
        if (bucket->grad_shard != FG_RT_NONE)
            ok = ok && fg_shadow_write(&checked->shadow, bucket->grad_shard,
                                       bucket->grad_shard + bucket->grad_bytes, FG_SEGMENT_WRITTEN,
                                       driver);
    }
    return ok;
}

FgChecked *fg_checked_new(FgRtCx *cx)
{
    FgChecked *checked = calloc(1, sizeof *checked);
    if (!checked)
        return NULL;
    uint64_t states = cx->program->state_bytes, host = cx->host_at + cx->program->host_state_bytes;
    checked->cx = cx;
    checked->events = calloc((size_t)cx->program->n_events + 1, sizeof *checked->events);
    checked->effects_room = most_effects();
    checked->effects = calloc(checked->effects_room, sizeof *checked->effects);
    bool guarded = cx->mapped <= GUARD_BYTES;
    if (guarded)
        checked->guard = malloc((size_t)cx->mapped + 1);
    if (!checked->events || !checked->effects || (guarded && !checked->guard) ||
        !fg_shadow_open(&checked->shadow, cx->mapped) ||
        !mark_driver_memory(checked, cx->program)) {
        fg_checked_free(checked);
        return NULL;
    }
    memset(cx->memory + states, POISON, cx->bytes - states);
    memset(cx->memory + host, POISON, cx->program->host_arena_bytes);
    return checked;
}

void fg_checked_free(FgChecked *checked)
{
    if (!checked)
        return;
    fg_shadow_close(&checked->shadow);
    free(checked->events);
    free(checked->effects);
    free(checked->guard);
    free(checked);
}

uint64_t fg_checked_used_bytes(const FgChecked *checked)
{
    const FgShadow *shadow = &checked->shadow;
    uint64_t used = 0;
    for (size_t i = 0; i < shadow->n && shadow->segments[i].begin < checked->cx->bytes; i++) {
        uint64_t end = i + 1 < shadow->n ? shadow->segments[i + 1].begin : shadow->bytes;
        if (shadow->segments[i].state != FG_SEGMENT_EMPTY)
            used += end - shadow->segments[i].begin;
    }
    return used;
}

/* ---- clocks ---- */

static void clock_join(Clock *clock, const Clock *other)
{
    for (int i = 0; i < FG_RT_N_STREAMS; i++)
        if (other->ticks[i] > clock->ticks[i])
            clock->ticks[i] = other->ticks[i];
}

void fg_checked_join(FgChecked *checked)
{
    Clock all = {{0}};
    for (int i = 0; i < FG_RT_N_STREAMS; i++)
        clock_join(&all, &checked->clocks[i]);
    for (int i = 0; i < FG_RT_N_STREAMS; i++)
        checked->clocks[i] = all;
}

void fg_checked_record(FgChecked *checked, FgRtStream stream, uint32_t event)
{
    if (event >= checked->cx->program->n_events || stream >= FG_RT_N_STREAMS) {
        fg_rt_fail(checked->cx, "record", "the event or the stream does not exist");
        return;
    }
    checked->events[event] = (Event){true, checked->clocks[stream]};
}

void fg_checked_wait(FgChecked *checked, FgRtStream stream, uint32_t event)
{
    if (event >= checked->cx->program->n_events || stream >= FG_RT_N_STREAMS) {
        fg_rt_fail(checked->cx, "wait", "the event or the stream does not exist");
        return;
    }
    if (!checked->events[event].recorded) {
        char text[96];
        snprintf(text, sizeof text, "event %" PRIu32 " is waited for before it is recorded", event);
        fg_rt_fail(checked->cx, "wait", text);
        return;
    }
    clock_join(&checked->clocks[stream], &checked->events[event].clock);
}

static bool is_ordered(const FgChecked *checked, const FgCall *call, const FgAccess *access)
{
    return access->tick <= checked->clocks[call->stream].ticks[access->stream];
}

void fg_checked_begin(FgChecked *checked)
{
    FgRtCx *cx = checked->cx;
    fg_checked_join(checked);
    memset(checked->events, 0, cx->program->n_events * sizeof *checked->events);
    FgAccess driver = {.call = "the driver", .node = UINT32_MAX};
    for (uint32_t i = 0; i < cx->program->n_inputs; i++) {
        const FgRtInput *input = &cx->program->inputs[i];
        uint64_t end = input->offset + input->elements * fg_rt_dtype_bytes(input->dtype);
        if (input->offset < end && end <= cx->bytes &&
            !fg_shadow_write(&checked->shadow, input->offset, end, FG_SEGMENT_WRITTEN, driver))
            fg_rt_fail(cx, "begin", "out of memory");
    }
    if (checked->guard)
        memcpy(checked->guard, cx->memory, cx->mapped);
}

/* ---- messages ---- */

typedef struct NodeText {
    char text[128];
} NodeText;

static NodeText describe(const FgChecked *checked, uint32_t node, const char *call)
{
    const FgRtProgram *program = checked->cx->program;
    NodeText out;
    if (node < program->n_nodes && program->nodes[node].name)
        snprintf(out.text, sizeof out.text, "%s of node %" PRIu32 " (%s)", call, node,
                 program->nodes[node].name);
    else if (node == UINT32_MAX)
        snprintf(out.text, sizeof out.text, "%s", call);
    else
        snprintf(out.text, sizeof out.text, "%s of node %" PRIu32, call, node);
    return out;
}

static bool blame(FgChecked *checked, const FgCall *call, const char *what, uint64_t at,
                  const FgAccess *other)
{
    NodeText this = describe(checked, call->node, call->info->name);
    NodeText that = describe(checked, other->node, other->call ? other->call : "nothing");
    fg_rt_raise(checked->cx, "%s at byte %" PRIu64 ": %s, after %s", what, at, this.text,
                that.text);
    return false;
}

static bool complain(FgChecked *checked, const FgCall *call, const char *what, uint64_t at)
{
    NodeText this = describe(checked, call->node, call->info->name);
    fg_rt_raise(checked->cx, "%s at byte %" PRIu64 ": %s", what, at, this.text);
    return false;
}

/* ---- one call ---- */

static bool reads(const FgEffect *effect)
{
    return effect->bytes > 0 &&
           (effect->kind == FG_EFFECT_READ || effect->kind == FG_EFFECT_UPDATE);
}

static bool writes(const FgEffect *effect)
{
    return effect->bytes > 0 &&
           (effect->kind == FG_EFFECT_WRITE || effect->kind == FG_EFFECT_UPDATE);
}

static bool is_range(const FgEffect *effect)
{
    return effect->kind != FG_EFFECT_INPLACE && effect->kind != FG_EFFECT_COMM;
}

static bool overlap(const FgEffect *a, const FgEffect *b)
{
    return a->begin < b->begin + b->bytes && b->begin < a->begin + a->bytes;
}

static bool may_alias(const FgChecked *checked, const FgEffect *result, const FgEffect *operand)
{
    if (result->begin != operand->begin || result->bytes != operand->bytes)
        return false;
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        if (effect->kind == FG_EFFECT_INPLACE && effect->arg == result->arg &&
            effect->other == operand->arg)
            return true;
    }
    return false;
}

/* In one of the two memories. */
static bool is_inside(const FgRtCx *cx, const FgEffect *range)
{
    bool host = range->begin >= cx->host_at;
    uint64_t begin = host ? cx->host_at : 0, bytes = host ? cx->host_bytes : cx->bytes;
    return range->begin - begin <= bytes && range->bytes <= bytes - (range->begin - begin);
}

/* Host memory is for copies: stash writes it, fetch reads it. */
static bool check_side(FgChecked *checked, const FgCall *call, const FgEffect *range)
{
    bool may = writes(range) ? strcmp(call->info->name, "stash") == 0
                             : strcmp(call->info->name, "fetch") == 0;
    if ((range->begin >= checked->cx->host_at) == may)
        return true;
    return complain(checked, call, may ? "a copy that stays on the device" : "use of host memory",
                    range->begin);
}

/* Ranges lie inside the memory; a call's results overlap neither each other nor, unless in place,
 * its operands. */
static bool check_ranges(FgChecked *checked, const FgCall *call)
{
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *a = &checked->effects[i];
        if (!is_range(a))
            continue;
        if (!is_inside(checked->cx, a))
            return complain(checked, call, "access outside the memory", a->begin);
        if (!check_side(checked, call, a))
            return false;
        for (int32_t j = 0; j < checked->n_effects; j++) {
            const FgEffect *b = &checked->effects[j];
            if (i != j && writes(a) && (reads(b) || writes(b)) && overlap(a, b) &&
                !may_alias(checked, a, b) && !may_alias(checked, b, a))
                return complain(checked, call, "a result overlaps another operand of its call",
                                a->begin > b->begin ? a->begin : b->begin);
        }
    }
    return true;
}

static bool check_read(FgChecked *checked, const FgCall *call, const FgEffect *effect,
                       FgSegment *segment)
{
    switch (segment->state) {
    case FG_SEGMENT_EMPTY:
        return complain(checked, call, "read of memory that was never written", segment->begin);
    case FG_SEGMENT_RELEASED:
        return blame(checked, call, "read after release", segment->begin, &segment->release);
    case FG_SEGMENT_SCRATCH:
        return blame(checked, call, "read of a used workspace", segment->begin, &segment->write);
    case FG_SEGMENT_WRITTEN:
        break;
    }
    uint64_t end = effect->begin + effect->bytes;
    bool inside = segment->write_begin >= effect->begin && segment->write_end <= end;
    bool around = segment->write_begin <= effect->begin && segment->write_end >= end;
    if (!inside && !around)
        return blame(checked, call, "read of a value that was partly overwritten", segment->begin,
                     &segment->write);
    if (!is_ordered(checked, call, &segment->write))
        return blame(checked, call, "read without waiting for the write", segment->begin,
                     &segment->write);
    return true;
}

static bool check_write(FgChecked *checked, const FgCall *call, const FgSegment *segment)
{
    if (!is_ordered(checked, call, &segment->write))
        return blame(checked, call, "write without waiting for an earlier write", segment->begin,
                     &segment->write);
    for (int i = 0; i < FG_RT_N_STREAMS; i++)
        if (!is_ordered(checked, call, &segment->reads[i]))
            return blame(checked, call, "write without waiting for an earlier read", segment->begin,
                         &segment->reads[i]);
    return true;
}

static bool check_accesses(FgChecked *checked, const FgCall *call, const FgEffect *effect,
                           FgAccess access)
{
    size_t n;
    FgSegment *segment =
        fg_shadow_range(&checked->shadow, effect->begin, effect->begin + effect->bytes, &n);
    if (!segment) {
        fg_rt_raise(checked->cx, "out of memory");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((reads(effect) && !check_read(checked, call, effect, &segment[i])) ||
            (writes(effect) && !check_write(checked, call, &segment[i])))
            return false;
        if (effect->kind == FG_EFFECT_RELEASE) {
            if (segment[i].state == FG_SEGMENT_RELEASED)
                return blame(checked, call, "released twice", segment[i].begin,
                             &segment[i].release);
            segment[i].state = FG_SEGMENT_RELEASED;
            segment[i].release = access;
        } else if (reads(effect)) {
            segment[i].reads[call->stream] = access;
        }
    }
    return true;
}

static bool check_comm(FgChecked *checked, const FgCall *call, const FgEffect *effect,
                       FgAccess access)
{
    FgAccess *last = &checked->comms[effect->arg];
    if (!is_ordered(checked, call, last))
        return blame(checked, call, "two unordered collectives on one communicator", 0, last);
    *last = access;
    return true;
}

/* Results become poison before the call, except where they hold an operand. */
static void poison_results(FgChecked *checked)
{
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        bool kept = effect->kind != FG_EFFECT_WRITE || !writes(effect);
        for (int32_t j = 0; j < checked->n_effects && !kept; j++)
            kept = reads(&checked->effects[j]) && overlap(effect, &checked->effects[j]);
        if (!kept)
            memset(checked->cx->memory + effect->begin, POISON, effect->bytes);
    }
}

/* ---- custom functions ---- */

/* Each call's effects are declared by the model, not by this runtime: what the function must leave
 * alone is looked at around every operand too where the memory is too large for a copy. */
static bool is_result(const FgChecked *checked, uint64_t at)
{
    for (int32_t i = 0; i < checked->n_effects; i++)
        if (writes(&checked->effects[i]) && at >= checked->effects[i].begin &&
            at - checked->effects[i].begin < checked->effects[i].bytes)
            return true;
    return false;
}

static uint64_t hash_run(const FgChecked *checked, uint64_t from, uint64_t to, uint64_t hash)
{
    for (uint64_t at = from; at < to; at++)
        if (!is_result(checked, at))
            hash = (hash ^ checked->cx->memory[at]) * 0x100000001b3u;
    return hash;
}

/* Operands that are read, and MARGIN bytes on both sides of every one. */
static uint64_t hash_around(const FgChecked *checked)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        uint64_t end = effect->begin + effect->bytes;
        uint64_t from = effect->begin > MARGIN ? effect->begin - MARGIN : 0;
        uint64_t to = checked->cx->bytes - end > MARGIN ? end + MARGIN : checked->cx->bytes;
        hash = hash_run(checked, from, writes(effect) ? effect->begin : end, hash);
        hash = hash_run(checked, end, to, hash);
    }
    return hash;
}

/* Results were poison before the call: a float that still is was never written. */
static bool check_written(FgChecked *checked, const FgCall *call)
{
    const FgRtProgram *program = checked->cx->program;
    for (uint64_t i = 0; i < call->args[2]; i++) {
        const FgRtOperand *row = &program->operands[call->args[1] + i];
        uint64_t size = fg_rt_dtype_bytes(row->dtype), left = 0;
        bool is_float = row->dtype <= FG_RT_F64;
        for (uint64_t at = 0; row->written && is_float && at < row->elements * size; at++) {
            left = checked->cx->memory[row->offset + at] == POISON ? left + 1 : 0;
            if (left == size && at % size == size - 1)
                return complain(checked, call, "a declared result was not written",
                                row->offset + at + 1 - size);
            left = at % size == size - 1 ? 0 : left;
        }
    }
    return true;
}

static bool check_custom(FgChecked *checked, const FgCall *call)
{
    if (!checked->guard && hash_around(checked) != checked->around)
        return complain(checked, call, "write outside the declared effects, near an operand",
                        checked->effects[0].begin);
    return check_written(checked, call);
}

static bool read_effects(FgChecked *checked, const FgCall *call)
{
    const char *bad;
    const FgRtCx *cx = checked->cx;
    uint32_t room = fg_effects_room(call, cx->program);
    if (room > checked->effects_room) {
        FgEffect *grown = realloc(checked->effects, room * sizeof *grown);
        if (!grown) {
            fg_rt_raise(checked->cx, "out of memory");
            return false;
        }
        checked->effects = grown;
        checked->effects_room = room;
    }
    checked->n_effects = fg_effects_read(call, cx->program, cx->rank, checked->effects, &bad);
    for (int32_t i = 0; i < checked->n_effects; i++)
        if (is_range(&checked->effects[i]))
            checked->effects[i].begin = fg_place(cx, checked->effects[i].begin);
    if (checked->n_effects >= 0)
        return true;
    fg_rt_raise(checked->cx, "its declared effects make no sense at '%s'", bad);
    return false;
}

bool fg_checked_enter(FgChecked *checked, const FgCall *call)
{
    if (call->stream >= FG_RT_N_STREAMS) {
        fg_rt_raise(checked->cx, "stream %d does not exist", (int)call->stream);
        return false;
    }
    if (!read_effects(checked, call) || !check_ranges(checked, call))
        return false;
    FgAccess access = {++checked->clocks[call->stream].ticks[call->stream], call->node,
                       call->stream, call->info->name};
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        bool good = effect->kind == FG_EFFECT_COMM ? check_comm(checked, call, effect, access)
                    : is_range(effect) && effect->bytes
                        ? check_accesses(checked, call, effect, access)
                        : true;
        if (!good)
            return false;
    }
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        if (writes(effect) &&
            !fg_shadow_write(&checked->shadow, effect->begin, effect->begin + effect->bytes,
                             effect->scratch ? FG_SEGMENT_SCRATCH : FG_SEGMENT_WRITTEN, access)) {
            fg_rt_raise(checked->cx, "out of memory");
            return false;
        }
    }
    poison_results(checked);
    if (fg_call_has_rows(call) && !checked->guard)
        checked->around = hash_around(checked);
    return true;
}

/* Every byte outside the declared results is what it was. */
static void check_guard(FgChecked *checked, const FgCall *call)
{
    const FgRtCx *cx = checked->cx;
    if (memcmp(checked->guard, cx->memory, cx->mapped) == 0)
        return;
    uint64_t at = 0;
    while (checked->guard[at] == cx->memory[at])
        at++;
    complain(checked, call, "write outside the declared effects", at);
}

void fg_checked_leave(FgChecked *checked, const FgCall *call)
{
    uint8_t *memory = checked->cx->memory;
    if (fg_call_has_rows(call) && !check_custom(checked, call))
        return;
    for (int32_t i = 0; i < checked->n_effects; i++) {
        const FgEffect *effect = &checked->effects[i];
        if (effect->scratch || effect->kind == FG_EFFECT_RELEASE)
            memset(memory + effect->begin, POISON, effect->bytes);
        if (checked->guard && (writes(effect) || effect->kind == FG_EFFECT_RELEASE))
            memcpy(checked->guard + effect->begin, memory + effect->begin, effect->bytes);
    }
    if (checked->guard)
        check_guard(checked, call);
}
