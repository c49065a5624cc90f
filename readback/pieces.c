/* A value that is read in pieces: the hidden rows and the labels of a head that takes some tokens
 * at a time (passes/head.c).
 *
 * Elsewhere a call reads values whole. These reads may name a part, of whole rows, and each kind of
 * them has to walk over its value: every piece begins where the one before it ended (or is that one
 * again, for work that runs twice), the first at the begin, the last ends at the end. So all rows
 * are used, in order, as often as they should be. */
#include "readback/names.h"

#include <string.h>

/* Arguments that are read in pieces, with the argument that counts their rows. */
static const struct {
    const char *entry, *arg, *rows;
} kinds[FG_RB_PIECE_KINDS] = {{"linear", "x", "m"},
                              {"linear_dw", "x", "m"},
                              {"cross_entropy", "labels", "rows"},
                              {"cross_entropy_back", "labels", "rows"}};

static int kind_of(const FgRbNames *names, const char *arg)
{
    for (int i = 0; i < FG_RB_PIECE_KINDS; i++)
        if (!strcmp(kinds[i].entry, names->call->entry->name) && !strcmp(kinds[i].arg, arg))
            return i;
    return -1;
}

/* Whole rows of a value that work makes, or of the batch. */
static bool may_be_parted(const FgRbNames *names, uint32_t root)
{
    const FgTraceBuffer *buffer = &names->out->buffers.data[root];
    return buffer->state ? buffer->role == FG_ROLE_INPUT
                         : names->buffers.data[root].kind == FG_TRACE_WORK;
}

bool fg_rb_piece(FgRbNames *names, uint32_t root, const FgRbEffect *effect)
{
    int kind = kind_of(names, names->call->entry->params.data[effect->arg]);
    if (kind < 0 || !may_be_parted(names, root))
        return false;
    const FgTraceBuffer *buffer = &names->out->buffers.data[root];
    FgRbPiece *piece = &names->buffers.data[root].pieces[kind];
    uint64_t rows = fg_rb_arg(names->call, kinds[kind].rows, 0);
    uint64_t begin = effect->at - buffer->at, row = rows ? effect->bytes / rows : 0;
    if (effect->at < buffer->at || effect->bytes > buffer->bytes ||
        begin > buffer->bytes - effect->bytes || !row || begin % row || buffer->bytes % row)
        return false;
    uint64_t next = piece->end == buffer->bytes ? 0 : piece->end;
    bool again = begin == piece->begin && begin + effect->bytes == piece->end;
    if (begin != next && !again)
        return false;
    *piece = (FgRbPiece){begin, begin + effect->bytes};
    return true;
}

void fg_rb_pieces_end(FgRbNames *names, FgLoc loc)
{
    for (uint32_t i = 0; i < names->buffers.len; i++)
        for (int k = 0; k < FG_RB_PIECE_KINDS; k++) {
            FgRbPiece *piece = &names->buffers.data[i].pieces[k];
            const FgTraceBuffer *buffer = &names->out->buffers.data[i];
            if (piece->end && piece->end != buffer->bytes) {
                fg_diag(names->source->diags, loc, FG_D_NOT_PROVED,
                        "fg_rt_%s reads pieces of %s up to byte %llu of %llu in @%s",
                        kinds[k].entry, buffer->name, (unsigned long long)piece->end,
                        (unsigned long long)buffer->bytes, names->func);
                names->ok = false;
            }
            *piece = (FgRbPiece){0, 0};
        }
}
