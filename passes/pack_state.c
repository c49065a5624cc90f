/* pack_state: placing, barring, and what follows from both.
 *
 * The bound of a section: those of its members that are left stand one above the other. Sorted by
 * `low`, everything from one member on stands at or above that member's low, so that low plus the
 * bytes of all these must not exceed the capacity. A barred item's low is the least that any
 * neighbour left gives it as a support; when the neighbour's low rises, it follows (spread).
 *
 * Grounds: min follows from one placed item. The low of a barred item follows from the failure that
 * barred it, from the neighbours that are placed (they are no supports any more), and from the
 * lows of those that are left. A section that overflows follows from the lows that were added up.
 */
#include "passes/pack_state.h"

#include <string.h>

#define DECAY 1.001 /* a failure weighs this much more than the one before it */
#define MOST_BUMP 1e200

static void set_add(uint64_t *set, uint32_t item)
{
    set[item / 64] |= (uint64_t)1 << item % 64;
}

static void set_drop(uint64_t *set, uint32_t item)
{
    set[item / 64] &= ~((uint64_t)1 << item % 64);
}

static void set_join(const FgPackState *s, uint64_t *set, const uint64_t *more)
{
    for (uint32_t w = 0; w < s->words; w++)
        set[w] |= more[w];
}

static void join_grounds(const FgPackState *s, uint64_t *set, uint32_t item)
{
    const FgPackKnown *k = &s->known[item];
    if (k->why != FG_PACK_FLOOR)
        set_join(s, set, s->whys.data + k->why);
    else if (k->under != FG_PACK_FLOOR)
        set_add(set, k->under);
}

void fg_pack_blame(FgPackState *s, uint32_t item)
{
    join_grounds(s, s->fail, item);
}

/* ---- failures ---- */
static void scale_weights(FgPackState *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        s->known[i].weight /= MOST_BUMP;
    s->bump /= MOST_BUMP;
}

/* The members up to the n-th are too much. */
static void fail_section(FgPackState *s, const FgPackMember *m, uint32_t n)
{
    s->bump *= DECAY;
    if (s->bump > MOST_BUMP)
        scale_weights(s);
    memset(s->fail, 0, s->words * sizeof *s->fail);
    for (uint32_t i = 0; i < n; i++) {
        FgPackKnown *k = &s->known[m[i].item];
        if (k->placed)
            continue;
        k->weight += s->bump;
        join_grounds(s, s->fail, m[i].item);
    }
}

/* Sorted from the last time but for a few. */
static void sort_members(const int64_t *low, FgPackMember *m, uint32_t n)
{
    int64_t last = INT64_MAX; /* key of the member before */
    for (uint32_t i = 0; i < n; i++) {
        int64_t key = low[m[i].item] + m[i].low;
        if (key <= last) {
            last = key;
            continue;
        }
        FgPackMember x = m[i];
        uint32_t k = i;
        for (; k > 0 && low[m[k - 1].item] + m[k - 1].low < key; k--)
            m[k] = m[k - 1];
        m[k] = x;
    }
}

static bool section_fits(FgPackState *s, uint32_t section)
{
    FgPackMember *m = s->members + s->first_member[section];
    uint32_t n = s->first_member[section + 1] - s->first_member[section];
    s->scanned += n;
    sort_members(s->low, m, n);
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t low = s->support[m[i].item];
        if (low == FG_PACK_NO_SUPPORT)
            continue;
        sum += m[i].width;
        if (low + m[i].low + sum > s->capacity) {
            fail_section(s, m, i + 1);
            return false;
        }
    }
    return true;
}

/* ---- what is known changes ---- */
static void touch_sections(FgPackState *s, const FgPackItem *x)
{
    for (uint32_t k = 0; k < x->n_spans; k++) {
        const FgPackReach *r = &s->m->reaches[x->span + k];
        for (uint32_t q = r->from - s->from; q < r->to - s->from; q++) {
            if (s->stamp[q] == s->now)
                continue;
            s->stamp[q] = s->now;
            fg_vec_push(s->arena, &s->touched, q);
        }
    }
}

/* Brings the sets up to what is known of an item. */
static void follow(FgPackState *s, uint32_t item)
{
    const FgPackKnown *k = &s->known[item];
    s->support[item] = k->placed ? FG_PACK_NO_SUPPORT : s->low[item];
    if (k->placed)
        set_add(s->placed, item);
    else
        set_drop(s->placed, item);
    if (!k->placed && s->low[item] > k->min)
        set_add(s->barred, item);
    else
        set_drop(s->barred, item);
}

static void change(FgPackState *s, uint32_t item, int64_t min, int64_t low, uint32_t why,
                   uint32_t under)
{
    FgPackKnown *k = &s->known[item];
    FgPackChange old = {k->min, s->low[item], item, k->why, k->under, s->whys.len};
    fg_vec_push(s->arena, &s->trail, old);
    if (low > s->low[item]) {
        fg_vec_push(s->arena, &s->work, item);
        touch_sections(s, k->item);
    }
    k->min = min;
    s->low[item] = low;
    k->why = why;
    k->under = under;
    follow(s, item);
}

static void begin_changes(FgPackState *s)
{
    s->now++;
    s->work.len = s->touched.len = 0;
}

/* The least that a neighbour left gives a barred item; INT64_MAX when none is left. Stops as soon
 * as that is not above `than`, a place that the item can have. */
static int64_t support(FgPackState *s, uint32_t item, int64_t than)
{
    const FgPackKnown *k = &s->known[item];
    int64_t least = FG_PACK_NO_SUPPORT / 2;
    uint32_t i = k->first;
    for (; i < k->end && least > than; i++) {
        int64_t at = s->support[s->meetings[i].item] + s->meetings[i].below;
        least = at < least ? at : least;
    }
    s->scanned += i - k->first;
    return least == FG_PACK_NO_SUPPORT / 2 ? INT64_MAX : fg_pack_align(least, k->item->align);
}

/* Raises a barred item's low to what its neighbours give. The grounds: `more`, and the
 * neighbours. */
static bool rest_on_neighbours(FgPackState *s, uint32_t item, int64_t low, const uint64_t *more)
{
    const FgPackKnown *k = &s->known[item];
    uint32_t old_len = s->whys.len;
    for (uint32_t w = 0; w < s->words; w++)
        fg_vec_push(s->arena, &s->whys, more[w]);
    uint64_t *set = s->whys.data + old_len;
    const uint64_t *meets = s->meets + (size_t)item * s->words;
    for (uint32_t w = 0; w < s->words; w++) {
        set[w] |= meets[w] & s->placed[w];
        for (uint64_t left = meets[w] & ~s->placed[w]; left; left &= left - 1)
            join_grounds(s, set, 64 * w + (uint32_t)__builtin_ctzll(left));
    }
    if (low > s->capacity - k->item->bytes) {
        memcpy(s->fail, set, s->words * sizeof *set);
        return false;
    }
    uint32_t len = s->whys.len;
    s->whys.len = old_len; /* as the trail must restore it */
    change(s, item, k->min, low, old_len, k->under);
    s->whys.len = len;
    return true;
}

/* Barred neighbours of items that rose, or were placed, rise too; then the sections are looked at.
 * Barred items that are each other's supports climb in turn, by their sizes: after as many steps
 * as there are items the rest is left for later, which only leaves lows lower. */
static bool spread(FgPackState *s)
{
    for (uint32_t i = 0; i < s->work.len && i < 4 * s->n; i++) {
        const FgPackKnown *k = &s->known[s->work.data[i]];
        const uint64_t *meets = s->meets + (size_t)s->work.data[i] * s->words;
        s->scanned += k->end - k->first;
        for (uint32_t w = 0; w < s->words; w++)
            for (uint64_t left = meets[w] & s->barred[w]; left; left &= left - 1) {
                uint32_t other = 64 * w + (uint32_t)__builtin_ctzll(left);
                int64_t low = support(s, other, s->low[other]);
                if (low <= s->low[other])
                    continue;
                memset(s->fail, 0, s->words * sizeof *s->fail);
                join_grounds(s, s->fail, other);
                if (!rest_on_neighbours(s, other, low, s->fail))
                    return false;
            }
    }
    for (uint32_t i = 0; i < s->touched.len; i++)
        if (!section_fits(s, s->touched.data[i]))
            return false;
    return true;
}

/* Bytes that an item has in no section of its own (windows) count for the height too. */
static bool reach_fits(FgPackState *s)
{
    for (uint32_t i = 0; s->m->windows && i < s->work.len; i++) {
        const FgPackKnown *k = &s->known[s->work.data[i]];
        if (k->placed || s->low[s->work.data[i]] <= s->capacity - k->item->bytes)
            continue;
        memset(s->fail, 0, s->words * sizeof *s->fail);
        join_grounds(s, s->fail, s->work.data[i]);
        return false;
    }
    return true;
}

bool fg_pack_put(FgPackState *s, uint32_t item, bool *hat)
{
    FgPackKnown *k = &s->known[item];
    k->placed = true;
    k->offset = k->min;
    follow(s, item);
    *hat = false;
    begin_changes(s);
    fg_vec_push(s->arena, &s->work, item);
    for (uint32_t i = k->first; i < k->end; i++) {
        const FgPackMeeting *with = &s->meetings[i];
        FgPackKnown *other = &s->known[with->item];
        if (other->placed)
            continue;
        *hat = true;
        int64_t min = fg_pack_align(k->offset + with->above, other->item->align);
        if (min <= other->min)
            continue;
        int64_t low = s->low[with->item];
        bool above = min >= low;
        change(s, with->item, min, above ? min : low, above ? FG_PACK_FLOOR : other->why, item);
    }
    for (uint32_t q = k->hull.from; q + 1 < k->hull.to; q++)
        s->crossing[q - s->from]--;
    return reach_fits(s) && spread(s);
}

void fg_pack_undo(FgPackState *s, uint32_t trail)
{
    while (s->trail.len > trail) {
        const FgPackChange *c = &s->trail.data[--s->trail.len];
        FgPackKnown *k = &s->known[c->item];
        k->min = c->min;
        s->low[c->item] = c->low;
        k->why = c->why;
        k->under = c->under;
        follow(s, c->item);
        s->whys.len = c->why_len;
    }
}

void fg_pack_take(FgPackState *s, uint32_t item, uint32_t trail)
{
    FgPackKnown *k = &s->known[item];
    k->placed = false;
    follow(s, item);
    fg_pack_undo(s, trail);
    for (uint32_t q = k->hull.from; q + 1 < k->hull.to; q++)
        s->crossing[q - s->from]++;
}

bool fg_pack_bar(FgPackState *s, uint32_t item)
{
    const FgPackKnown *k = &s->known[item];
    int64_t low = support(s, item, k->min);
    begin_changes(s);
    if (k->under != FG_PACK_FLOOR)
        set_add(s->fail, k->under);
    if (low <= k->min) /* with windows an item may slip below another */
        low = fg_pack_align(k->min + 1, k->item->align);
    return rest_on_neighbours(s, item, low, s->fail) && spread(s);
}

/* ---- setting up ---- */
/* Items come in the order in which they begin. */
static bool find_meetings(FgPackState *s, const uint32_t *ids, uint32_t most)
{
    uint32_t n = 0;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < s->n; i++) {
            FgPackKnown *a = &s->known[i];
            for (uint32_t j = i + 1; j < s->n && s->known[j].hull.from < a->hull.to; j++) {
                int64_t below, above;
                if (!fg_pack_distance(s->m, ids[i], ids[j], &below))
                    continue;
                fg_pack_distance(s->m, ids[j], ids[i], &above);
                if (fill) {
                    s->meetings[a->end] = (FgPackMeeting){j, below, above};
                    s->meetings[s->known[j].end] = (FgPackMeeting){i, above, below};
                    set_add(s->meets + (size_t)i * s->words, j);
                    set_add(s->meets + (size_t)j * s->words, i);
                }
                a->end++;
                s->known[j].end++;
                n++;
            }
            if (n > most)
                return false;
        }
        if (fill)
            return true;
        s->meetings = FG_NEW_ARRAY(s->arena, FgPackMeeting, 2 * (size_t)n + 1);
        s->meets = FG_NEW_ARRAY(s->arena, uint64_t, (size_t)s->n * s->words + 1);
        n = 0;
        for (uint32_t i = 0, at = 0; i < s->n; i++) {
            uint32_t count = s->known[i].end;
            s->known[i].first = s->known[i].end = at;
            at += count;
        }
    }
    return true;
}

static void find_members(FgPackState *s)
{
    s->first_member = FG_NEW_ARRAY(s->arena, uint32_t, s->n_sections + 2);
    uint32_t *count = s->first_member + 1;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < s->n; i++) {
            const FgPackItem *x = s->known[i].item;
            for (uint32_t k = 0; k < x->n_spans; k++) {
                const FgPackReach *r = &s->m->reaches[x->span + k];
                for (uint32_t q = r->from - s->from; q < r->to - s->from; q++) {
                    if (fill)
                        s->members[count[q]] = (FgPackMember){i, r->low, r->high - r->low};
                    count[q + !fill]++;
                }
            }
        }
        if (fill)
            break;
        for (uint32_t q = 0; q < s->n_sections; q++)
            count[q + 1] += count[q];
        s->members = FG_NEW_ARRAY(s->arena, FgPackMember, count[s->n_sections] + 1);
    }
}

bool fg_pack_state_init(FgArena *arena, const FgPackModel *m, const FgPackPart *part, uint32_t most,
                        FgPackState *s)
{
    const uint32_t *ids = m->by_part + part->first;
    *s = (FgPackState){.arena = arena, .m = m, .from = part->from, .n = part->n, .bump = 1};
    s->n_sections = part->to - part->from;
    s->words = (s->n + 63) / 64;
    s->known = FG_NEW_ARRAY(arena, FgPackKnown, s->n + 1);
    s->low = FG_NEW_ARRAY(arena, int64_t, s->n + 1);
    s->support = FG_NEW_ARRAY(arena, int64_t, s->n + 1);
    s->placed = FG_NEW_ARRAY(arena, uint64_t, s->words + 1);
    s->barred = FG_NEW_ARRAY(arena, uint64_t, s->words + 1);
    for (uint32_t i = 0; i < s->n; i++) {
        s->known[i].item = &m->items[ids[i]];
        s->known[i].hull = fg_pack_hull(m, ids[i]);
    }
    if (!find_meetings(s, ids, most))
        return false;
    find_members(s);
    s->crossing = FG_NEW_ARRAY(arena, uint32_t, s->n_sections + 1);
    s->stamp = FG_NEW_ARRAY(arena, uint32_t, s->n_sections + 1);
    s->fail = FG_NEW_ARRAY(arena, uint64_t, s->words + 1);
    return true;
}

void fg_pack_state_reset(FgPackState *s)
{
    memset(s->crossing, 0, s->n_sections * sizeof *s->crossing);
    s->trail.len = s->whys.len = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        FgPackKnown *k = &s->known[i];
        k->min = s->low[i] = 0;
        k->under = k->why = FG_PACK_FLOOR;
        k->placed = false;
        follow(s, i);
        for (uint32_t q = k->hull.from; q + 1 < k->hull.to; q++)
            s->crossing[q - s->from]++;
    }
}
