/* streams: the fewest waits that order all conflicting accesses.
 *
 * sched -> sched, after memplan. The order is walked with a map of the memory: for each byte range
 * the last writer and the last reader of each stream since. A node must follow the last writer of
 * what it reads, and the last writer and readers of what it writes; on its own stream program order
 * does that, on another a wait must. Since addresses are what is compared, data dependencies and
 * the reuse of an address are one case. Vector clocks drop every wait that another one implies. All
 * streams join at the end of a function, so each starts with a clean map.
 *
 * Cost: O(accesses x ranges touched). A map is a sorted array; a state, whose memory is nobody
 * else's, has one of its own, so that the arena's stays short.
 */
#include "passes/lower.h"

#include <string.h>

#define NEVER 0 /* positions count from 1 */

typedef struct Range {
    uint64_t begin, end;
    uint32_t writer;               /* position, or NEVER */
    uint32_t reader[FG_N_STREAMS]; /* last position on each stream since the write */
} Range;

typedef FG_VEC(Range) Map; /* sorted, disjoint */

typedef struct Clock {
    uint32_t seen[FG_N_STREAMS]; /* last position on each stream that is known to be complete */
} Clock;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    const FgIdVec *order;
    Map arena;
    Map *states; /* root -> its map, where it lives always */
    Clock *at;   /* position -> clock after the node */
    Clock now[FG_N_STREAMS];
    uint32_t workspace;
    bool changed; /* some node waits for others than before */
} Cx;

static FgStream stream_at(const Cx *cx, uint32_t position)
{
    return cx->m->nodes.data[cx->order->data[position - 1]].stream;
}

/* First range that ends after `address`. */
static uint32_t find(const Map *map, uint64_t address)
{
    uint32_t low = 0, high = map->len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (map->data[mid].end <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Puts `n` ranges where those from `first` on, before `last`, stand. */
static void replace(Cx *cx, Map *map, uint32_t first, uint32_t last, const Range *ranges,
                    uint32_t n)
{
    uint32_t behind = map->len - last;
    while (map->len < first + n + behind)
        fg_vec_push(cx->scratch, map, *ranges);
    map->len = first + n + behind;
    if (first + n != last)
        memmove(&map->data[first + n], &map->data[last], behind * sizeof *ranges);
    memcpy(&map->data[first], ranges, n * sizeof *ranges);
}

/* Makes `address` a border if a range spans it. */
static void split(Cx *cx, Map *map, uint64_t address)
{
    uint32_t i = find(map, address);
    if (i == map->len || map->data[i].begin >= address)
        return;
    Range parts[2] = {map->data[i], map->data[i]};
    parts[0].end = parts[1].begin = address;
    replace(cx, map, i, i + 1, parts, 2);
}

static void need_range(const Cx *cx, const Map *map, uint64_t begin, uint64_t end, bool write,
                       uint32_t *needs)
{
    for (uint32_t i = find(map, begin); i < map->len && map->data[i].begin < end; i++) {
        const Range *range = &map->data[i];
        if (range->writer != NEVER) {
            FgStream s = stream_at(cx, range->writer);
            needs[s] = range->writer > needs[s] ? range->writer : needs[s];
        }
        for (int s = 0; write && s < FG_N_STREAMS; s++)
            needs[s] = range->reader[s] > needs[s] ? range->reader[s] : needs[s];
    }
}

/* What it covers of a range in part, at either end, stays. */
static void mark_write(Cx *cx, Map *map, uint64_t begin, uint64_t end, uint32_t position)
{
    uint32_t first = find(map, begin), last = first, n = 0;
    Range ranges[3];
    while (last < map->len && map->data[last].begin < end)
        last++;
    if (last > first && map->data[first].begin < begin) {
        ranges[n] = map->data[first];
        ranges[n++].end = begin;
    }
    ranges[n++] = (Range){begin, end, position, {NEVER}};
    if (last > first && map->data[last - 1].end > end) {
        ranges[n] = map->data[last - 1];
        ranges[n++].begin = end;
    }
    replace(cx, map, first, last, ranges, n);
}

static void mark_read(Cx *cx, Map *map, uint64_t begin, uint64_t end, uint32_t position,
                      FgStream stream)
{
    split(cx, map, begin);
    split(cx, map, end);
    uint64_t at = begin;
    uint32_t i = find(map, begin);
    while (at < end) {
        if (i == map->len || map->data[i].begin > at) { /* not written in this function: a state */
            uint64_t to = i == map->len || map->data[i].begin > end ? end : map->data[i].begin;
            replace(cx, map, i, i, &(Range){at, to, NEVER, {NEVER}}, 1);
        }
        map->data[i].reader[stream] = position;
        at = map->data[i++].end;
    }
}

/* ---- accesses of a node ---- */
typedef void AccessFn(Cx *cx, Map *map, uint64_t begin, uint64_t end, bool write, uint32_t position,
                      FgStream stream, uint32_t *needs);

static bool lives_always(const FgModule *m, const FgValue *root)
{
    uint64_t end = root->host ? FG_HOST_BASE + m->host_state_bytes : m->state_bytes;
    return root->kind == FG_VALUE_STATE && root->offset < end;
}

static void access_value(Cx *cx, uint32_t v, bool write, uint32_t position, FgStream stream,
                         uint32_t *needs, AccessFn *access)
{
    if (v == FG_NO_ID)
        return;
    const FgValue *value = fg_value(cx->m, v);
    const FgValue *root = fg_value(cx->m, value->root);
    Map *map = lives_always(cx->m, root) ? &cx->states[root->id] : &cx->arena;
    uint64_t begin = root->offset + value->root_offset;
    access(cx, map, begin, begin + fg_type_bytes(value->type), write, position, stream, needs);
}

static void each_access(Cx *cx, const FgNode *node, uint32_t position, uint32_t *needs,
                        AccessFn *access)
{
    bool release =
        node->op == FG_OP_release; /* ends the content: like a write for whoever comes next */
    for (uint32_t k = 0; k < node->n_operands; k++)
        access_value(cx, node->operands[k], release, position, node->stream, needs, access);
    for (uint32_t k = 0; k < node->n_results; k++)
        access_value(cx, node->results[k], true, position, node->stream, needs, access);
    if (fg_op_has(node->op, FG_OPF_WORKSPACE))
        access_value(cx, cx->workspace, true, position, node->stream, needs, access);
}

static void look(Cx *cx, Map *map, uint64_t begin, uint64_t end, bool write, uint32_t position,
                 FgStream stream, uint32_t *needs)
{
    (void)position;
    (void)stream;
    need_range(cx, map, begin, end, write, needs);
}

static void mark(Cx *cx, Map *map, uint64_t begin, uint64_t end, bool write, uint32_t position,
                 FgStream stream, uint32_t *needs)
{
    (void)needs;
    if (write)
        mark_write(cx, map, begin, end, position);
    else
        mark_read(cx, map, begin, end, position, stream);
}

/* ---- waits ---- */
static bool implied(const Cx *cx, const uint32_t *needs, FgStream s)
{
    for (int o = 0; o < FG_N_STREAMS; o++)
        if (o != (int)s && needs[o] != NEVER && cx->at[needs[o]].seen[s] >= needs[s])
            return true;
    return false;
}

static void add_waits(Cx *cx, FgNode *node, uint32_t *needs)
{
    FgModule *m = cx->m;
    Clock *now = &cx->now[node->stream];
    for (int s = 0; s < FG_N_STREAMS; s++)
        if (s == (int)node->stream || needs[s] <= now->seen[s])
            needs[s] = NEVER;
    uint32_t *waits = FG_NEW_ARRAY(m->arena, uint32_t, FG_N_STREAMS), n = 0;
    for (int s = 0; s < FG_N_STREAMS; s++)
        if (needs[s] != NEVER && !implied(cx, needs, (FgStream)s))
            waits[n++] = cx->order->data[needs[s] - 1];
    cx->changed |=
        n != node->n_waits || (n > 0 && memcmp(waits, node->waits, n * sizeof *waits) != 0);
    node->waits = waits;
    node->n_waits = n;
    for (int s = 0; s < FG_N_STREAMS; s++) {
        if (needs[s] == NEVER)
            continue;
        for (int o = 0; o < FG_N_STREAMS; o++)
            if (cx->at[needs[s]].seen[o] > now->seen[o])
                now->seen[o] = cx->at[needs[s]].seen[o];
    }
}

static void order_function(Cx *cx, const FgIdVec *order)
{
    cx->order = order;
    cx->arena.len = 0;
    cx->states = FG_NEW_ARRAY(cx->scratch, Map, cx->m->values.len + 1);
    cx->at = FG_NEW_ARRAY(cx->scratch, Clock, order->len + 1);
    memset(cx->now, 0, sizeof cx->now);
    for (uint32_t i = 0; i < order->len; i++) {
        FgNode *node = fg_node(cx->m, order->data[i]);
        uint32_t needs[FG_N_STREAMS] = {NEVER}, position = i + 1;
        if (fg_node_is_name(node)) {
            cx->at[position] = cx->now[node->stream];
            continue;
        }
        each_access(cx, node, position, needs, look);
        add_waits(cx, node, needs);
        each_access(cx, node, position, needs, mark);
        cx->now[node->stream].seen[node->stream] = position;
        cx->at[position] = cx->now[node->stream];
    }
}

FgPassResult fg_pass_streams(FgPassCx *pass)
{
    FgModule *m = pass->module;
    Cx cx = {.m = m, .scratch = pass->scratch};
    for (uint32_t v = 0; v < m->values.len; v++)
        if (m->values.data[v].kind == FG_VALUE_STATE && m->values.data[v].role == FG_ROLE_WORKSPACE)
            cx.workspace = v;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        order_function(&cx, &m->funcs.data[f].order);
    return cx.changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
