/* Functions of the emitted file.
 *
 * A schedule becomes a body, `body_step`, that calls its pieces in order: `step_forward_layer_3`
 * holds the calls from the first compute node of that phase and layer up to the first of another.
 * What other streams do stands in issue order among them. Events are numbered through a whole body,
 * one for each node that something waits for. */
#include "codegen/ctext.h"
#include "codegen/parts.h"

#include "base/map.h"

#include <inttypes.h>
#include <string.h>

typedef struct Body {
    FgEmit *emit;
    const char *name;
    const FgFunc *func;
    uint32_t *events;  /* node id -> event, or FG_NO_ID */
    FgMap piece_names; /* base name -> pieces so far */
    FgStrVec pieces;
} Body;

typedef struct Place {
    FgPhase phase;
    int32_t layer;
} Place;

static const FgNode *node_at(const Body *body, uint32_t i)
{
    return &body->emit->module->nodes.data[body->func->order.data[i]];
}

static const char *stream_symbol(FgStream stream)
{
    switch (stream) {
    case FG_STREAM_COMPUTE:
        return "FG_COMPUTE";
    case FG_STREAM_GATHER:
        return "FG_GATHER";
    case FG_STREAM_REDUCE:
        return "FG_REDUCE";
    case FG_STREAM_COPY:
        return "FG_COPY";
    case FG_STREAM_STASH:
        return "FG_STASH";
    case FG_STREAM_FETCH:
        return "FG_FETCH";
    case FG_N_STREAMS:
    default:
        FG_BUG("no such stream");
    }
}

/* Gives an event to every node that another one waits for, in issue order. */
static void number_events(Body *body)
{
    uint32_t n = body->emit->module->nodes.len, next = 0;
    bool *waited = FG_NEW_ARRAY(body->emit->arena, bool, n + 1);
    body->events = FG_NEW_ARRAY(body->emit->arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < body->func->order.len; i++) {
        const FgNode *node = node_at(body, i);
        for (uint32_t k = 0; k < node->n_waits; k++)
            waited[node->waits[k]] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        body->events[i] = FG_NO_ID;
    for (uint32_t i = 0; i < body->func->order.len; i++) {
        uint32_t id = body->func->order.data[i];
        if (waited[id])
            body->events[id] = next++;
    }
    if (next > body->emit->n_events)
        body->emit->n_events = next;
}

static void put_arg(FgBuf *out, const FgArg *arg)
{
    fg_buf_puts(out, ", ");
    if (arg->symbol)
        fg_buf_puts(out, arg->symbol);
    else if (arg->is_float)
        fg_c_double(out, arg->f);
    else if (arg->is_address && arg->u >= FG_HOST_BASE)
        fg_buf_printf(out, "FG_RT_HOST + %" PRIu64, arg->u - FG_HOST_BASE);
    else
        fg_c_u64(out, arg->u);
}

/* The trailing comment: which node this is, and where the model says so. */
static void put_origin(FgBuf *out, const FgModule *module, const FgNode *node)
{
    const char *file = fg_emit_file_name(module, node->loc);
    fg_buf_puts(out, " /* ");
    fg_c_comment(out, *node->name ? node->name : fg_op_info(node->op)->name);
    if (*file) {
        fg_buf_puts(out, ", ");
        fg_c_comment(out, file);
        fg_buf_printf(out, ":%u:%u", node->loc.line, node->loc.col);
    }
    fg_buf_puts(out, " */\n");
}

static void put_call(FgEmit *emit, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    FgBuf *out = &emit->functions;
    if (!info->call)
        return; /* names memory, does no work */
    FgArgs args = {0};
    fg_node_args(&emit->args, node, &args);
    fg_buf_printf(out, "    fg_rt_%s(cx, %u, %s", info->call, emit->calls.len,
                  stream_symbol(node->stream));
    for (uint32_t i = 0; i < args.len; i++)
        put_arg(out, &args.data[i]);
    fg_buf_puts(out, ");");
    put_origin(out, emit->module, node);
    fg_vec_push(emit->arena, &emit->calls, node->id);
}

static void put_node(Body *body, const FgNode *node)
{
    FgBuf *out = &body->emit->functions;
    const char *stream = stream_symbol(node->stream);
    for (uint32_t i = 0; i < node->n_waits; i++) {
        uint32_t event = body->events[node->waits[i]];
        if (event == FG_NO_ID)
            FG_BUG("#%u waits for #%u, which is not in @%s", node->id, node->waits[i], body->name);
        fg_buf_printf(out, "    fg_rt_wait(cx, %s, %u);\n", stream, event);
    }
    put_call(body->emit, node);
    if (body->events[node->id] != FG_NO_ID)
        fg_buf_printf(out, "    fg_rt_record(cx, %s, %u);\n", stream, body->events[node->id]);
}

/* ---- pieces ---- */
static bool same_place(Place a, Place b)
{
    return a.phase == b.phase && a.layer == b.layer;
}

static const char *piece_name(Body *body, Place place)
{
    FgArena *arena = body->emit->arena;
    const char *base = fg_arena_printf(arena, "%s_%s", body->name, fg_phase_name(place.phase));
    if (place.layer >= 0)
        base = fg_arena_printf(arena, "%s_layer_%d", base, place.layer);
    uint32_t n = 0;
    fg_map_get(&body->piece_names, base, &n);
    fg_map_set(&body->piece_names, base, n + 1);
    return n == 0 ? base : fg_arena_printf(arena, "%s_part_%u", base, n + 1);
}

static void open_piece(Body *body, Place place)
{
    const char *name = piece_name(body, place);
    fg_vec_push(body->emit->arena, &body->pieces, name);
    fg_buf_printf(&body->emit->functions, "static void %s(FgRtCx *cx)\n{\n", name);
}

static void put_pieces(Body *body)
{
    Place open = {0};
    for (uint32_t i = 0; i < body->func->order.len; i++) {
        const FgNode *node = node_at(body, i);
        bool computes = node->stream == FG_STREAM_COMPUTE && fg_op_info(node->op)->call;
        Place place = {node->phase, node->layer};
        if (body->pieces.len == 0 || (computes && !same_place(open, place))) {
            if (body->pieces.len > 0)
                fg_buf_puts(&body->emit->functions, "}\n\n");
            open_piece(body, place);
            open = place;
        }
        put_node(body, node);
    }
    if (body->pieces.len > 0)
        fg_buf_puts(&body->emit->functions, "}\n\n");
}

void fg_emit_body(FgEmit *emit, const char *name, const FgFunc *func)
{
    Body body = {.emit = emit, .name = name, .func = func};
    fg_map_init(&body.piece_names, emit->arena);
    if (func) {
        number_events(&body);
        put_pieces(&body);
    }
    fg_buf_printf(&emit->functions, "static void body_%s(FgRtCx *cx)\n{\n", name);
    for (uint32_t i = 0; i < body.pieces.len; i++)
        fg_buf_printf(&emit->functions, "    %s(cx);\n", body.pieces.data[i]);
    fg_buf_puts(&emit->functions, "    fg_rt_join(cx);\n}\n\n");
}
