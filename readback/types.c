/* Element types: bytes are read in the type in which they were written.
 *
 * A program says of its arena how many bytes lie where, not of which type; but each call says in
 * which type it reads and writes, by the argument that gives an element's size in its annotation.
 * So a value is of the type of its writer, a copy of the type of what it copies, and a state of the
 * type that its table says, or that the first call says. Results that no argument speaks of are
 * f32, but for the words of a set of rows. Operands that none speaks of are only compared in size:
 * ids, and what is always f32. A program that says another type of all the calls that meet at a
 * value is another program, and well-formed. */
#include "readback/names.h"

#include <string.h>

enum { F32 = 1, I32 = 5 }; /* 1 + FgRtDtype */

static const char *dtype_name(uint32_t dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16", "f64", "i32", "i64"}; /* FgRtDtype */
    return names[dtype - 1];
}

static bool is_copy(FgTraceKind kind)
{
    return kind == FG_TRACE_GATHER || kind == FG_TRACE_EXCHANGE || kind == FG_TRACE_STASH ||
           kind == FG_TRACE_FETCH;
}

/* A part of a state is of the state's type. */
static FgRbBuffer *typed(FgRbNames *names, uint32_t id)
{
    const FgTraceBuffer *buffer = &names->out->buffers.data[id];
    return &names->buffers.data[buffer->state ? buffer->root : id];
}

static void agree(FgRbNames *names, const FgRbEffect *effect, uint32_t dtype, uint32_t held)
{
    const FgRbBuffer *side = typed(names, held);
    if (dtype && side->dtype && side->dtype != dtype)
        fg_rb_unsafe(names, "it takes %s for %s, but %s holds %s",
                     names->call->entry->params.data[effect->arg], dtype_name(dtype),
                     names->out->buffers.data[held].name, dtype_name(side->dtype));
}

/* What lies in the range was written in the type; returns that of the first bytes. */
static uint32_t agree_all(FgRbNames *names, const FgRbEffect *effect)
{
    uint32_t lo = fg_check_bound(&names->space, effect->at), first = 0;
    uint32_t hi = fg_check_bound(&names->space, effect->at + effect->bytes);
    for (uint32_t at = fg_check_cells_find(&names->cells, lo); at < hi && names->ok;
         at = fg_check_cells_next(&names->cells, at)) {
        uint32_t held = *(const uint32_t *)fg_check_cells_at(&names->cells, at);
        if (!held)
            continue;
        agree(names, effect, effect->dtype, held - 1);
        first = first ? first : typed(names, held - 1)->dtype;
    }
    return first;
}

/* A state has one type, that of the first that says one. */
static void agree_state(FgRbNames *names, const FgRbEffect *effect, uint32_t dtype, uint32_t id)
{
    agree(names, effect, dtype, id);
    if (!typed(names, id)->dtype)
        typed(names, id)->dtype = dtype;
}

/* The type of what the call writes into a buffer. */
static uint32_t written_as(const FgRbNames *names, const FgRbEffect *effect, bool state)
{
    if (effect->dtype)
        return effect->dtype;
    if (is_copy(names->kind))
        return names->copied;
    if (state)
        return 0;
    return !strcmp(names->call->entry->name, "row_set") ? I32 : F32;
}

void fg_rb_type_read(FgRbNames *names, const FgRbEffect *effect, uint32_t id)
{
    if (names->out->buffers.data[id].state) {
        agree_state(names, effect, effect->dtype, id);
        names->copied = typed(names, id)->dtype;
    } else {
        names->copied = agree_all(names, effect);
    }
}

void fg_rb_type_write(FgRbNames *names, const FgRbEffect *effect, uint32_t id)
{
    bool state = names->out->buffers.data[id].state;
    uint32_t dtype = written_as(names, effect, state);
    if (state) {
        agree_state(names, effect, dtype, id);
        return;
    }
    if (effect->kind == FG_RB_UPDATE)
        agree_all(names, effect);
    agree(names, effect, dtype, names->out->buffers.data[id].root); /* of a gradient buffer */
    names->buffers.data[id].dtype = dtype;
}
