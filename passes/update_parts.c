/* The update of a bucket some of whose states lie in host memory.
 *
 * The owned slice is cut into equal parts. For each, what lies in host memory is fetched into a
 * buffer of the part's size, AdamW runs over the part, and what it wrote goes back. The fetch of a
 * part is issued before the update of the part before it, so that both directions of the link and
 * the update run side by side, with two parts on the device at a time. AdamW works element by
 * element: parts give the same bits as the whole.
 *
 *   %m0 = fetch %m[0]      %m1 = fetch %m[1]
 *   %m0 = adamw_part %g[0] ...
 *   %m[0] = stash %m0      %m2 = fetch %m[2]      ... */
#include "passes/lower.h"

#include "base/checked.h"

#define N_STATES 4 /* master, moment1, moment2, shard: the results of AdamW */

/* One part of one state: where it always lies, and the buffer on the device that stands for it. */
typedef struct Held {
    uint32_t home, here; /* FG_NO_ID: there is no such state */
} Held;

typedef struct Part {
    uint64_t first, n; /* elements of the slice */
    uint32_t grad;
    Held states[N_STATES];
} Part;

typedef struct Parts {
    FgModule *m;
    FgBuilder *build;
    uint32_t bucket;
    Part *parts;
    uint32_t n;
    uint64_t slice;
} Parts;

static uint32_t view_of(Parts *p, uint32_t state, uint64_t first, uint64_t n)
{
    FgModule *m = p->m;
    if (state == FG_NO_ID || n == p->slice)
        return state;
    FgValue whole = *fg_value(m, state);
    int64_t dim = (int64_t)n;
    uint32_t view = fg_add_value(m, whole.name, fg_type(m, whole.type->dtype, 1, &dim));
    FgValue *v = fg_value(m, view);
    v->root = state;
    v->root_offset = first * fg_dtype_bytes(whole.type->dtype);
    v->mem = whole.mem;
    FgNode *node = fg_node_new(p->build, FG_OP_view, &state, 1);
    fg_node_finish_into(p->build, node, &view, 1);
    return view;
}

static bool on_host(const Parts *p, uint32_t value)
{
    const FgValue *v = &p->m->values.data[value];
    return p->m->values.data[v->root].host;
}

/* A buffer on the device for what lies in host memory; the state's own part otherwise. */
static Held hold(Parts *p, uint32_t state, uint64_t first, uint64_t n)
{
    Held held = {view_of(p, state, first, n), FG_NO_ID};
    held.here = held.home;
    if (state == FG_NO_ID || !on_host(p, held.home))
        return held;
    FgValue home = *fg_value(p->m, held.home);
    held.here = fg_add_value(p->m, home.name, home.type);
    fg_value(p->m, held.here)->mem = home.mem;
    return held;
}

/* All names first: a copy then depends on nothing but what was written before the update began. */
static Parts cut(FgModule *m, FgArena *scratch, FgBuilder *build, uint32_t bucket)
{
    const FgBucket *b = &m->buckets.data[bucket];
    Parts p = {m, build, bucket, NULL, 0, b->elements / m->ranks};
    uint64_t pieces = (uint64_t)m->plan->buckets.data[bucket].pieces;
    uint64_t each = fg_round_up((p.slice + pieces - 1) / pieces, FG_ALIGN_ELEMENTS);
    p.parts = FG_NEW_ARRAY(scratch, Part, p.slice / each + 1);
    for (uint64_t first = 0; first < p.slice; first += each) {
        uint64_t n = p.slice - first < each ? p.slice - first : each;
        const uint32_t states[N_STATES] = {b->master, b->moment1, b->moment2, b->shard};
        Part *part = &p.parts[p.n++];
        part->first = first;
        part->n = n;
        part->grad = view_of(&p, b->grad_shard, first, n);
        for (int i = 0; i < N_STATES; i++)
            part->states[i] = hold(&p, states[i], first, n);
    }
    return p;
}

static void copy(Parts *p, FgOp op, uint32_t from, uint32_t to)
{
    FgNode *node = fg_node_new(p->build, op, &from, 1);
    node->bucket = p->bucket;
    fg_node_finish_into(p->build, node, &to, 1);
}

static void fetch(Parts *p, const Part *part)
{
    for (int i = 0; i < N_STATES; i++)
        if (part->states[i].here != part->states[i].home)
            copy(p, FG_OP_fetch, part->states[i].home, part->states[i].here);
}

static void stash(Parts *p, const Part *part)
{
    for (int i = 0; i < N_STATES; i++)
        if (part->states[i].here != part->states[i].home)
            copy(p, FG_OP_stash, part->states[i].here, part->states[i].home);
}

static void update(Parts *p, const Part *part, uint32_t scalars, bool pending)
{
    uint32_t operands[] = {part->grad, scalars}, results[N_STATES];
    for (int i = 0; i < N_STATES; i++)
        results[i] = part->states[i].here;
    FgNode *node = fg_node_new(p->build, FG_OP_adamw_part, operands, 2);
    node->bucket = p->bucket;
    fg_node_set_int(p->m, node, "first", (int64_t)part->first);
    fg_node_set_int(p->m, node, "pending", pending);
    fg_node_finish_into(p->build, node, results, N_STATES);
}

void fg_emit_update_parts(FgModule *m, FgArena *scratch, FgBuilder *build, uint32_t bucket,
                          uint32_t scalars, bool pending)
{
    Parts p = cut(m, scratch, build, bucket);
    fetch(&p, &p.parts[0]);
    for (uint32_t i = 0; i < p.n; i++) {
        if (i + 1 < p.n)
            fetch(&p, &p.parts[i + 1]);
        update(&p, &p.parts[i], scalars, pending);
        stash(&p, &p.parts[i]);
    }
}

/* The master's part comes, the shard's part goes, where they lie in host memory. */
void fg_emit_cast_parts(FgModule *m, FgArena *scratch, FgBuilder *build, uint32_t bucket)
{
    Parts p = cut(m, scratch, build, bucket);
    for (uint32_t i = 0; i < p.n; i++) {
        const Held *master = &p.parts[i].states[0], *shard = &p.parts[i].states[3];
        if (master->here != master->home)
            copy(&p, FG_OP_fetch, master->home, master->here);
        FgNode *node = fg_node_new(build, FG_OP_cast, &master->here, 1);
        node->bucket = bucket;
        fg_node_set_word(m, node, "to", fg_dtype_name(m->buckets.data[bucket].dtype));
        fg_node_finish_into(build, node, &shard->here, 1);
        if (shard->here != shard->home)
            copy(&p, FG_OP_stash, shard->here, shard->home);
    }
}
