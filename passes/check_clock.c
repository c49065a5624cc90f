/* Happens-before, and the proof that conflicting accesses follow it.
 *
 * A node happens before another of the same function when a path of program order (two nodes of one
 * stream) and waits leads from one to the other. All streams join at the end of a function, so that
 * functions are ordered whole, and one look at each function covers every period. The clock of a
 * node says for each stream how many nodes of the function, counted in issue order, are complete
 * when it starts. As waits may only name earlier nodes there is no cycle.
 *
 * Then one walk in issue order: every run of bytes remembers its last writer and, for each stream,
 * its last reader since. A read must come after the writer, a write after writer and readers.
 * Earlier accesses of the same kind and stream are covered by these by induction. Reads of two
 * streams do not conflict. */
#include "passes/check_internal.h"

#include <string.h>

/* For each stream: 1 + position of the last node known to be complete; 0 is none. */
typedef struct Clock {
    uint32_t seen[FG_N_STREAMS];
} Clock;

/* The accesses to a run of bytes: 1 + positions. */
typedef struct Fact {
    uint32_t writer, readers[FG_N_STREAMS];
    uint32_t owner; /* 1 + root of the last access */
} Fact;

typedef struct Order {
    FgCheck *check;
    const FgCheckSpace *space;
    const FgTraceFunc *func;
    Clock *clocks; /* by position */
    FgCheckCells cells;
    uint32_t waits, reuses;
} Order;

static const FgTraceNode *node_at(const Order *order, uint32_t position)
{
    return &order->check->trace->nodes.data[order->func->order.data[position]];
}

static void join(Clock *into, const Clock *from)
{
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        if (from->seen[s] > into->seen[s])
            into->seen[s] = from->seen[s];
}

/* True when the wait counts; reports it otherwise. */
static bool wait_ok(Order *order, const FgTraceNode *node, uint32_t position, uint32_t wait)
{
    FgCheck *check = order->check;
    if (wait >= check->trace->nodes.len || check->position[wait] == FG_CHECK_NONE ||
        check->func[wait] != check->func[node->id]) {
        fg_check_fail(check, node, 8, "it waits for #%u, which is no node of @%s", wait,
                      order->func->name);
        return false;
    }
    const FgTraceNode *source = &check->trace->nodes.data[wait];
    const char *text = fg_check_node_text(check, source);
    if (check->position[wait] >= position) {
        fg_check_fail(check, node, 9,
                      "it waits for %s, which is issued later: a cycle of waits; a wait may name "
                      "earlier nodes only",
                      text);
        return false;
    }
    if (source->stream == node->stream)
        fg_check_fail(check, node, 10, "it waits for %s on its own stream: the wait says nothing",
                      text);
    if (!source->entry || !node->entry) {
        fg_check_fail(check, node, 11, "a wait between it and %s is never emitted: one has no call",
                      text);
        return false;
    }
    return true;
}

/* A release does no work, but it is where a life ends: who takes the memory must come after it. */
static bool orders(const FgTraceNode *node)
{
    return fg_check_works(node) || node->kind == FG_TRACE_RELEASE;
}

/* What a node knows from its stream (`from`) and all of its waits but one. */
static void check_needed(Order *order, const FgTraceNode *node, const Clock *from, uint32_t skip)
{
    Clock clock = *from;
    uint32_t at = order->check->position[node->waits[skip]];
    FgStream stream = node_at(order, at)->stream;
    for (uint32_t k = 0; k < node->n_waits; k++) {
        uint32_t other = order->check->position[node->waits[k]];
        if (k == skip)
            continue;
        join(&clock, &order->clocks[other]);
        if (other + 1 > clock.seen[node_at(order, other)->stream])
            clock.seen[node_at(order, other)->stream] = other + 1;
    }
    if (clock.seen[stream] > at)
        fg_check_fail(order->check, node, 17,
                      "its wait for %s is implied by its stream and its other waits",
                      fg_check_node_text(order->check, node_at(order, at)));
}

static void make_clocks(Order *order)
{
    Clock streams[FG_N_STREAMS]; /* what the next node of a stream knows */
    memset(streams, 0, sizeof streams);
    for (uint32_t i = 0; i < order->func->order.len; i++) {
        const FgTraceNode *node = node_at(order, i);
        Clock *clock = &order->clocks[i];
        const Clock before_waits = streams[node->stream];
        *clock = before_waits;
        for (uint32_t k = 0; k < node->n_waits; k++) {
            if (!wait_ok(order, node, i, node->waits[k]))
                continue;
            uint32_t at = order->check->position[node->waits[k]];
            join(clock, &order->clocks[at]);
            if (at + 1 > clock->seen[node_at(order, at)->stream])
                clock->seen[node_at(order, at)->stream] = at + 1;
            order->waits++;
            if (order->check->trace->emitted)
                check_needed(order, node, &before_waits, k);
        }
        streams[node->stream] = *clock;
        if (orders(node))
            streams[node->stream].seen[node->stream] = i + 1;
    }
}

static bool before(const Order *order, uint32_t earlier, uint32_t later)
{
    return order->clocks[later].seen[node_at(order, earlier)->stream] > earlier;
}

static void unordered(Order *order, uint32_t at, uint32_t earlier, const FgTraceAccess *access,
                      bool earlier_writes)
{
    FgCheck *check = order->check;
    const FgTraceNode *node = node_at(order, at), *other = node_at(order, earlier);
    const char *value = fg_check_value_text(check, access->buffer);
    const char *text = fg_check_node_text(check, other);
    bool spoils = access->read && access->scratch; /* a read, for people */
    if (access->write && !(spoils && earlier_writes))
        fg_check_fail(check, node, 12,
                      "it writes %s while %s may still %s the same bytes; it needs %s", value, text,
                      earlier_writes ? "write" : "read", fg_check_wait_text(check, other));
    else if (other->kind == FG_TRACE_GATHER)
        fg_check_fail(check, node, 13,
                      "it reads %s before its gather %s is known to be complete; it needs %s",
                      value, text, fg_check_wait_text(check, other));
    else
        fg_check_fail(check, node, 14,
                      "it reads %s while %s may still write the same bytes; it needs %s", value,
                      text, fg_check_wait_text(check, other));
}

/* Demands that the accesses so far to one run come before this one. True when it overwrites what
 * another value left. */
static bool check_run(Order *order, const Fact *fact, uint32_t at, const FgTraceAccess *access)
{
    uint32_t root = order->check->root[access->buffer];
    if (fact->writer && fact->writer - 1 != at && !before(order, fact->writer - 1, at))
        unordered(order, at, fact->writer - 1, access, true);
    if (!access->write)
        return false;
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        uint32_t reader = fact->readers[s];
        if (reader && reader - 1 != at && !before(order, reader - 1, at))
            unordered(order, at, reader - 1, access, false);
    }
    return fact->owner && fact->owner - 1 != root;
}

static void check_access(Order *order, uint32_t at, const FgTraceAccess *access)
{
    FgCheckSpan span = order->space->spans[access->buffer];
    if (span.lo >= span.hi)
        return;
    uint32_t stream = node_at(order, at)->stream, root = order->check->root[access->buffer];
    bool reuse = false;
    fg_check_cells_split(&order->cells, span);
    for (uint32_t i = span.lo; i < span.hi; i = fg_check_cells_next(&order->cells, i)) {
        Fact *fact = fg_check_cells_at(&order->cells, i);
        reuse |= check_run(order, fact, at, access);
        fact->readers[stream] = at + 1;
        fact->owner = root + 1;
    }
    if (!access->write)
        return;
    order->reuses += reuse && !access->scratch;
    Fact *fact = fg_check_cells_merge(&order->cells, span);
    *fact = (Fact){.writer = at + 1, .owner = root + 1};
}

/* Of the accesses of one node: its own operands must survive its writes, unless it works in place.
 */
static bool may_share(const FgTraceAccess *read, const FgTraceAccess *write,
                      const FgCheckSpan *spans)
{
    bool same = spans[read->buffer].lo == spans[write->buffer].lo &&
                spans[read->buffer].hi == spans[write->buffer].hi;
    return same && !write->scratch && read->inplace == write->buffer;
}

static void check_own(Order *order, const FgTraceNode *node, const FgTraceAccessVec *accesses)
{
    const FgCheckSpan *spans = order->space->spans;
    for (uint32_t i = 0; i < accesses->len; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const FgTraceAccess *a = &accesses->data[k], *b = &accesses->data[i];
            bool overlap = spans[a->buffer].lo < spans[b->buffer].hi &&
                           spans[b->buffer].lo < spans[a->buffer].hi;
            if (!overlap || (!a->write && !b->write) || (!a->write && may_share(a, b, spans)))
                continue;
            fg_check_fail(order->check, node, 15, "its %s %s and %s share bytes%s",
                          a->write ? "results" : "operand",
                          fg_check_value_text(order->check, a->buffer),
                          fg_check_value_text(order->check, b->buffer),
                          a->write ? "" : ", and it does not work in place so");
        }
    }
}

/* A communicator serialises what it is given: on one stream, its order is the issue order, alike on
 * every rank. */
static void check_communicators(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    static const char *const names[] = {"gather", "reduce", "parts"};
    const FgTraceNode *users[3] = {NULL, NULL, NULL};
    for (uint32_t f = 0; f < trace->funcs.len; f++) {
        for (uint32_t i = 0; i < trace->funcs.data[f].order.len; i++) {
            const FgTraceNode *node = &trace->nodes.data[trace->funcs.data[f].order.data[i]];
            if (!node->comm)
                continue;
            const FgTraceNode **user = &users[node->comm - 1];
            if (!*user)
                *user = node;
            if ((*user)->stream != node->stream)
                fg_check_fail(check, node, 16,
                              "it uses the %s communicator on stream %s, but %s does on stream %s: "
                              "ranks could meet them in different orders and hang",
                              names[node->comm - 1], fg_stream_name(node->stream),
                              fg_check_node_text(check, *user), fg_stream_name((*user)->stream));
        }
    }
}

void fg_check_order(FgCheck *check, const FgCheckSpace *space, uint32_t *out_waits,
                    uint32_t *out_reuses)
{
    Order order = {.check = check, .space = space};
    FgTraceAccessVec accesses = {0};
    fg_check_cells_init(&order.cells, check->arena, space->n, sizeof(Fact));
    check_communicators(check);
    for (uint32_t f = 0; f < check->trace->funcs.len; f++) {
        order.func = &check->trace->funcs.data[f];
        order.clocks = FG_NEW_ARRAY(check->arena, Clock, order.func->order.len);
        make_clocks(&order);
        fg_check_cells_reset(&order.cells);
        for (uint32_t i = 0; i < order.func->order.len; i++) {
            const FgTraceNode *node = node_at(&order, i);
            fg_check_accesses(check, node, &accesses);
            check_own(&order, node, &accesses);
            if (node->kind == FG_TRACE_RELEASE)
                fg_vec_push(check->arena, &accesses,
                            ((FgTraceAccess){node->operands[0], true, false, false, FG_NO_ID}));
            for (uint32_t k = 0; k < accesses.len; k++)
                check_access(&order, i, &accesses.data[k]);
        }
    }
    *out_waits = order.waits;
    *out_reuses = order.reuses;
}
