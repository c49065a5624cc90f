/* Internal to the exact search: what is known while a part is being placed.
 *
 * Items are placed one on the other from the bottom up. Of an item that is not placed yet two
 * figures are kept: `min`, where it would stand were it dropped now, right above what is placed
 * below it; and `low`, below which it stands in no placement that is still looked for. While both
 * are equal the item may be placed at min. An item that was tried there without success is
 * *barred*: it must rest on something not placed yet, which gives a higher `low`.
 *
 * Every `low` has its grounds: the placed items that it follows from. They say, when something
 * does not fit, which placements are to blame (conflict-directed backjumping). */
#ifndef FG_PASSES_PACK_STATE_H
#define FG_PASSES_PACK_STATE_H

#include "base/vec.h"
#include "passes/pack_internal.h"

typedef struct FgPackMember {
    uint32_t item;
    int64_t low, width; /* what of the item is in use in this section */
} FgPackMember;

typedef struct FgPackMeeting { /* an item that shares time with another */
    uint32_t item;
    int64_t above, below; /* how far it must be above the other, and the other above it */
} FgPackMeeting;

typedef struct FgPackChange { /* of what was known of an item */
    int64_t min, low;
    uint32_t item, why, under, why_len;
} FgPackChange;

typedef struct FgPackKnown { /* of an item; numbers are local to the part */
    const FgPackItem *item;
    FgPackReach hull;
    uint32_t first, end; /* its meetings */
    int64_t min, offset;
    uint32_t under; /* placed item that min follows from; FG_PACK_FLOOR: none */
    uint32_t why;   /* of low > min: a set in `whys`; FG_PACK_FLOOR while low == min */
    bool placed;
    double weight; /* how often it had part in a failure, recent ones first */
} FgPackKnown;

#define FG_PACK_FLOOR UINT32_MAX
#define FG_PACK_NO_SUPPORT (INT64_MAX / 2) /* more than any place, also with a distance added */

typedef struct FgPackState {
    FgArena *arena;
    const FgPackModel *m;
    uint32_t from, n_sections; /* of the part */
    int64_t capacity;
    FgPackKnown *known;
    int64_t *low;
    int64_t *support;          /* low of what is not placed, FG_PACK_NO_SUPPORT of what is */
    uint32_t n, words;         /* a set of items has so many words */
    uint64_t *placed, *barred; /* sets */
    uint64_t *meets;           /* item -> the set of those that it meets */
    FgPackMeeting *meetings;
    FgPackMember *members;
    uint32_t *first_member; /* section -> its members up to the next one's; sorted as it comes */
    uint32_t *crossing;     /* section -> items left that go on into the next one */
    FG_VEC(FgPackChange) trail;
    FG_VEC(uint64_t) whys;
    FgIdVec work, touched; /* items whose low rose; sections to look at again */
    uint32_t *stamp, now;
    uint64_t *fail; /* what the last failure follows from: a set */
    double bump;
    uint64_t scanned; /* meetings looked at: work that the caller counts, and sets back to 0 */
} FgPackState;

/* False when more than `most` pairs of items meet: too large for exact search. */
bool fg_pack_state_init(FgArena *arena, const FgPackModel *m, const FgPackPart *part, uint32_t most,
                        FgPackState *out);
/* Nothing placed, nothing known but the weights. */
void fg_pack_state_reset(FgPackState *s);

/* Places an item at its min. False, with s->fail, when something then cannot fit any more; the
 * item is placed all the same. *hat: something left meets it. */
bool fg_pack_put(FgPackState *s, uint32_t item, bool *hat);
/* Undoes everything since the trail had that length. */
void fg_pack_undo(FgPackState *s, uint32_t trail);
/* Takes the item away again, and everything known since. */
void fg_pack_take(FgPackState *s, uint32_t item, uint32_t trail);
/* The item does not stand at its min, which follows from s->fail. False, with s->fail, when
 * something then cannot fit any more. */
bool fg_pack_bar(FgPackState *s, uint32_t item);

/* Adds what is known of an item to s->fail. */
void fg_pack_blame(FgPackState *s, uint32_t item);

static inline bool fg_pack_has(const uint64_t *set, uint32_t item)
{
    return set[item / 64] >> item % 64 & 1;
}

#endif
