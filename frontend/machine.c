/* Reads a machine: JSON of rates and sizes into FgMachine. A file may start from a preset ("like")
 * and give only what differs. */
#include "frontend/machine.h"

#include "base/file.h"
#include "frontend/json.h"
#include "ir/ir.h"

#include <string.h>
#include <unistd.h>

#define FORMAT_VERSION 1
#define MOST_RANKS 65536
#define RESERVED_PARTS ((uint64_t)100 << 20) /* a guess, where nothing was measured */
#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))
/* What a machine can be: within it no time of a step is too large for a number. */
#define SLOWEST 1.0 /* a second */
#define FASTEST 1e30
#define LONGEST 3600.0    /* seconds, of what is only a start */
#define LEAST_FACTOR 1e-3 /* of one engine beside another */

typedef struct MachineCx {
    FgArena *arena;
    FgJsonCx *json;
    FgMachine *machine;
    bool based; /* starts from a preset: every key may be absent */
} MachineCx;

/* A member that must be there unless the file starts from a preset. */
static const FgJson *member(MachineCx *cx, const FgJson *object, const char *key, int kinds)
{
    if (cx->based)
        return fg_json_want(cx->json, object, key, kinds);
    return fg_json_need(cx->json, object, key, kinds);
}

static void read_number(MachineCx *cx, const FgJson *object, const char *key, double least,
                        double most, double *out)
{
    const FgJson *value = member(cx, object, key, FG_JSON_IS_NUMBER);
    if (!value)
        return;
    *out = value->f;
    if (value->f <= 0)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be greater than 0", key);
    else if (value->f < least)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must not be less than %g", key,
                       least);
    else if (value->f > most)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must not be greater than %g",
                       key, most);
}

/* So many a second. */
static void read_rate(MachineCx *cx, const FgJson *object, const char *key, double *out)
{
    read_number(cx, object, key, SLOWEST, FASTEST, out);
}

/* Bytes as an integer, or with a unit. */
static void read_bytes(MachineCx *cx, const FgJson *root, const char *key, bool needed,
                       uint64_t *out)
{
    int kinds = FG_JSON_IS_INT | FG_JSON_IS_STRING;
    const FgJson *value =
        needed ? member(cx, root, key, kinds) : fg_json_want(cx->json, root, key, kinds);
    if (!value)
        return;
    bool ok = value->kind == FG_JSON_INT ? value->i >= 0 : fg_parse_bytes(value->text, out);
    if (value->kind == FG_JSON_INT && ok)
        *out = (uint64_t)value->i;
    if (!ok)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                       "'%s' is no size: write bytes, or \"16 GiB\", \"512 MB\" ...", key);
    else if (*out >= FG_HOST_BASE)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be less than 2^62 bytes",
                       key);
}

static void read_count(MachineCx *cx, const FgJson *root, const char *key, bool needed,
                       uint32_t *out)
{
    const FgJson *value = needed ? member(cx, root, key, FG_JSON_IS_INT)
                                 : fg_json_want(cx->json, root, key, FG_JSON_IS_INT);
    if (!value)
        return;
    if (value->i < 1 || value->i > MOST_RANKS)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be 1 to %d", key,
                       MOST_RANKS);
    else
        *out = (uint32_t)value->i;
}

/* ---- curves ---- */
/* Share of a buffer that a rank sends or receives. With one rank nothing travels; its figures are
 * those of two. */
static double share(uint32_t ranks)
{
    return ranks > 1 ? (double)(ranks - 1) / ranks : 0.5;
}

static void push_point(MachineCx *cx, FgCurve *curve, FgLoc loc, double bytes, double seconds)
{
    if (curve->len) {
        const FgCurvePoint *last = &curve->data[curve->len - 1];
        if (bytes <= last->bytes || seconds < last->seconds) {
            fg_json_report(cx->json, loc, FG_D_BAD_VALUE,
                           "more bytes must follow, and take as long or longer (%g s, %g s before)",
                           seconds, last->seconds);
            return;
        }
    }
    FgCurvePoint point = {bytes, seconds};
    fg_vec_push(cx->arena, curve, point);
}

/* `part`: of the bytes, what travels. */
static void read_point(MachineCx *cx, const FgJson *item, double part, FgCurve *curve)
{
    if (!fg_json_is(cx->json, item, FG_JSON_IS_LIST, "a point"))
        return;
    bool ok = item->n_items == 2 && item->items[0].f > 0 &&
              item->items[0].f <= (double)FG_HOST_BASE && item->items[1].f >= SLOWEST &&
              item->items[1].f <= FASTEST;
    if (!ok) {
        fg_json_report(cx->json, item->loc, FG_D_BAD_VALUE,
                       "a point is [bytes, bytes a second]: more than 0, up to 2^62; %g to %g",
                       SLOWEST, FASTEST);
        return;
    }
    double bytes = item->items[0].f, rate = item->items[1].f;
    push_point(cx, curve, item->loc, bytes, bytes * part / rate);
}

/* A curve whose points stand in the list `points`. */
static void read_points(MachineCx *cx, const FgJson *object, const char *points, double part,
                        FgCurve *out)
{
    const char *const keys[] = {"latency", points};
    fg_json_check_keys(cx->json, object, "a curve", keys, N(keys));
    *out = (FgCurve){0};
    const FgJson *latency = fg_json_need(cx->json, object, "latency", FG_JSON_IS_NUMBER);
    const FgJson *rates = fg_json_need(cx->json, object, points, FG_JSON_IS_LIST);
    if (!latency || !rates)
        return;
    if (latency->f < 0 || latency->f > LONGEST)
        fg_json_report(cx->json, latency->loc, FG_D_BAD_VALUE,
                       "'latency' must not be negative, or more than %g", LONGEST);
    if (!rates->n_items)
        fg_json_report(cx->json, rates->loc, FG_D_BAD_VALUE, "'%s' has no point", points);
    push_point(cx, out, latency->loc, 1, latency->f);
    for (uint32_t i = 0; i < rates->n_items; i++)
        read_point(cx, &rates->items[i], part, out);
}

static void read_curve(MachineCx *cx, const FgJson *root, const char *key, bool needed,
                       FgCurve *out)
{
    const FgJson *object = needed ? member(cx, root, key, FG_JSON_IS_OBJECT)
                                  : fg_json_want(cx->json, root, key, FG_JSON_IS_OBJECT);
    if (object)
        read_points(cx, object, "bus_rates", share(cx->machine->ranks), out);
}

/* Host memory may be left out altogether; where it is offered, both directions have a curve. */
static void read_host(MachineCx *cx, const FgJson *root)
{
    FgMachine *m = cx->machine;
    const FgJson *stash = fg_json_want(cx->json, root, "stash", FG_JSON_IS_OBJECT);
    const FgJson *fetch = fg_json_want(cx->json, root, "fetch", FG_JSON_IS_OBJECT);
    read_bytes(cx, root, "host_memory", false, &m->host_node_bytes);
    if (stash)
        read_points(cx, stash, "rates", 1.0, &m->stash);
    if (fetch)
        read_points(cx, fetch, "rates", 1.0, &m->fetch);
    if (m->host_node_bytes && !cx->json->failed && (!m->stash.len || !m->fetch.len))
        fg_json_report(cx->json, root->loc, FG_D_MISSING_KEY,
                       "a machine with 'host_memory' has '%s', the time of copies %s the device",
                       m->stash.len ? "fetch" : "stash", m->stash.len ? "to" : "from");
}

void fg_machine_set_ranks(FgArena *arena, FgMachine *machine, uint32_t ranks)
{
    FG_ASSERT(ranks >= 1);
    double ratio = share(ranks) / share(machine->ranks);
    FgCurve *curves[] = {&machine->gather, &machine->reduce, &machine->all_to_all};
    for (uint32_t c = 0; c < N(curves); c++) {
        FgCurve scaled = {0};
        for (uint32_t i = 0; i < curves[c]->len; i++) {
            FgCurvePoint point = curves[c]->data[i];
            double latency = curves[c]->data[0].seconds;
            point.seconds = latency + (point.seconds - latency) * ratio;
            fg_vec_push(arena, &scaled, point);
        }
        *curves[c] = scaled;
    }
    if (machine->ranks_per_node == machine->ranks)
        machine->ranks_per_node = ranks;
    machine->ranks = ranks;
}

/* ---- the file ---- */
static void read_matmul(MachineCx *cx, const FgJson *root)
{
    static const char *const keys[] = {"f32", "bf16", "f16"};
    const FgJson *matmul = member(cx, root, "matmul", FG_JSON_IS_OBJECT);
    if (!matmul)
        return;
    fg_json_check_keys(cx->json, matmul, "'matmul'", keys, N(keys));
    read_rate(cx, matmul, "f32", &cx->machine->matmul_f32);
    read_rate(cx, matmul, "bf16", &cx->machine->matmul_bf16);
    read_rate(cx, matmul, "f16", &cx->machine->matmul_f16);
}

/* [[head dim, forward, backward], ...], by growing dim. */
static void read_attention(MachineCx *cx, const FgJson *root)
{
    FgMachine *m = cx->machine;
    const FgJson *list = fg_json_want(cx->json, root, "attention", FG_JSON_IS_LIST);
    if (!list)
        return;
    m->attention.data = NULL;
    m->attention.len = m->attention.cap = 0;
    for (uint32_t i = 0; i < list->n_items; i++) {
        const FgJson *item = &list->items[i];
        if (!fg_json_is(cx->json, item, FG_JSON_IS_LIST, "a rate of attention"))
            continue;
        bool ok = item->n_items == 3;
        for (uint32_t k = 0; k < item->n_items; k++)
            ok = ok && item->items[k].f >= SLOWEST && item->items[k].f <= FASTEST;
        if (ok && m->attention.len)
            ok = item->items[0].f > m->attention.data[m->attention.len - 1].dim;
        if (!ok) {
            fg_json_report(
                cx->json, item->loc, FG_D_BAD_VALUE,
                "a rate of attention is [head dim, forward, backward], all from %g to %g, "
                "by growing dim",
                SLOWEST, FASTEST);
            continue;
        }
        FgAttentionRate rate = {item->items[0].f, item->items[1].f, item->items[2].f};
        fg_vec_push(cx->arena, &m->attention, rate);
    }
}

static void read_beside(MachineCx *cx, const FgJson *root)
{
    static const char *const keys[] = {
        "compute_gather", "compute_reduce", "gather_compute", "reduce_compute", "gather_reduce",
        "reduce_gather",  "compute_host",   "host_compute",   "link_host",      "host_link",
        "stash_fetch",    "fetch_stash",    "compute_update", "update_compute", "gather_update",
        "update_gather",  "reduce_update",  "update_reduce",  "compute_parts",  "parts_compute",
        "update_parts",   "parts_update",   "gather_parts",   "parts_gather"};
    enum { NEEDED = 6 }; /* the rest may be absent */
    FgMachine *m = cx->machine;
    double *const fields[] = {
        &m->compute_beside_gather, &m->compute_beside_reduce, &m->gather_beside_compute,
        &m->reduce_beside_compute, &m->gather_beside_reduce,  &m->reduce_beside_gather,
        &m->compute_beside_host,   &m->host_beside_compute,   &m->link_beside_host,
        &m->host_beside_link,      &m->stash_beside_fetch,    &m->fetch_beside_stash,
        &m->compute_beside_update, &m->update_beside_compute, &m->gather_beside_update,
        &m->update_beside_gather,  &m->reduce_beside_update,  &m->update_beside_reduce,
        &m->compute_beside_parts,  &m->parts_beside_compute,  &m->update_beside_parts,
        &m->parts_beside_update,   &m->gather_beside_parts,   &m->parts_beside_gather};
    const FgJson *beside = member(cx, root, "beside", FG_JSON_IS_OBJECT);
    if (!beside)
        return;
    fg_json_check_keys(cx->json, beside, "'beside'", keys, N(keys));
    for (uint32_t i = 0; i < N(keys); i++)
        if (i < NEEDED || fg_json_get(beside, keys[i]))
            read_number(cx, beside, keys[i], LEAST_FACTOR, 1.0, fields[i]);
}

/* Every key but the first may be absent; that too where a preset has it. */
static void read_light(MachineCx *cx, const FgJson *root)
{
    static const char *const keys[] = {"flops",          "bf16",           "f16",
                                       "compute_gather", "gather_compute", "compute_reduce",
                                       "reduce_compute", "compute_update", "update_compute",
                                       "compute_parts",  "parts_compute"};
    enum { FACTORS = 3 }; /* from here on; before, operations and operations a second */
    FgMachine *m = cx->machine;
    double *const fields[] = {
        &m->light_flops,         &m->light_bf16,          &m->light_f16,
        &m->light_beside_gather, &m->gather_beside_light, &m->light_beside_reduce,
        &m->reduce_beside_light, &m->light_beside_update, &m->update_beside_light,
        &m->light_beside_parts,  &m->parts_beside_light};
    const FgJson *light = fg_json_want(cx->json, root, "light", FG_JSON_IS_OBJECT);
    if (!light)
        return;
    fg_json_check_keys(cx->json, light, "'light'", keys, N(keys));
    if (!(m->light_flops > 0) && !fg_json_need(cx->json, light, keys[0], FG_JSON_IS_NUMBER))
        return;
    for (uint32_t i = 0; i < N(keys); i++)
        if (fg_json_get(light, keys[i]))
            read_number(cx, light, keys[i], i < FACTORS ? SLOWEST : LEAST_FACTOR,
                        i < FACTORS ? FASTEST : 1.0, fields[i]);
}

static bool read_like(MachineCx *cx, FgDiags *diags, const FgJson *root)
{
    const FgJson *like = fg_json_want(cx->json, root, "like", FG_JSON_IS_STRING);
    if (!like)
        return !cx->json->failed;
    const char *preset = fg_machine_preset(like->text);
    if (!preset) {
        uint32_t n;
        const char *const *names = fg_machine_preset_names(&n);
        if (fg_json_report(cx->json, like->loc, FG_D_UNKNOWN_MACHINE,
                           "no machine preset is named '%s'", like->text))
            fg_json_suggest(cx->json, like->text, names, n);
        return false;
    }
    cx->based = true;
    return fg_machine_parse(cx->arena, diags, like->text, preset, strlen(preset), cx->machine);
}

static void read_sizes(MachineCx *cx, const FgJson *root)
{
    FgMachine *m = cx->machine;
    uint32_t ranks = m->ranks;
    read_count(cx, root, "ranks", true, &ranks);
    if (cx->based && ranks != m->ranks)
        fg_machine_set_ranks(cx->arena, m, ranks);
    else
        m->ranks = ranks;
    if (!cx->based)
        m->ranks_per_node = m->ranks;
    read_count(cx, root, "ranks_per_node", false, &m->ranks_per_node);
    const FgJson *estimated = fg_json_want(cx->json, root, "reserved_estimated", FG_JSON_IS_BOOL);
    if (estimated)
        m->reserved_estimated = estimated->i != 0;
    else if (fg_json_get(root, "reserved"))
        m->reserved_estimated = false;
    read_bytes(cx, root, "memory", true, &m->memory_bytes);
    read_bytes(cx, root, "reserved", true, &m->reserved_bytes);
    read_bytes(cx, root, "reserved_parts", false, &m->reserved_parts);
    read_bytes(cx, root, "workspace", false, &m->workspace_bytes);
    const FgJson *memory = fg_json_get(root, "memory");
    if (!cx->json->failed && m->reserved_bytes >= m->memory_bytes)
        fg_json_report(cx->json, memory ? memory->loc : root->loc, FG_D_BAD_VALUE,
                       "'reserved' leaves nothing of 'memory'");
}

static bool read_machine(MachineCx *cx, FgDiags *diags, const FgJson *root)
{
    static const char *const keys[] = {"foregather_machine",
                                       "name",
                                       "like",
                                       "ranks",
                                       "ranks_per_node",
                                       "memory",
                                       "reserved",
                                       "reserved_estimated",
                                       "reserved_parts",
                                       "workspace",
                                       "matmul",
                                       "attention",
                                       "vector",
                                       "memory_rate",
                                       "launch",
                                       "gather",
                                       "reduce",
                                       "all_to_all",
                                       "beside",
                                       "light",
                                       "host_memory",
                                       "stash",
                                       "fetch"};
    if (!fg_json_is(cx->json, root, FG_JSON_IS_OBJECT, "a machine"))
        return false;
    fg_json_check_keys(cx->json, root, "a machine", keys, N(keys));
    const FgJson *version = fg_json_need(cx->json, root, "foregather_machine", FG_JSON_IS_INT);
    if (version && version->i != FORMAT_VERSION)
        fg_json_report(cx->json, version->loc, FG_D_BAD_VALUE,
                       "this program reads version %d of machine files", FORMAT_VERSION);
    if (!read_like(cx, diags, root))
        return false;
    FgMachine *m = cx->machine;
    const FgJson *name = fg_json_want(cx->json, root, "name", FG_JSON_IS_STRING);
    if (name)
        m->name = fg_arena_strdup(cx->arena, name->text);
    read_sizes(cx, root);
    read_matmul(cx, root);
    read_attention(cx, root);
    read_rate(cx, root, "vector", &m->vector_flops);
    read_rate(cx, root, "memory_rate", &m->memory_rate);
    read_number(cx, root, "launch", 0, LONGEST, &m->launch_seconds);
    read_curve(cx, root, "gather", true, &m->gather);
    read_curve(cx, root, "reduce", true, &m->reduce);
    read_curve(cx, root, "all_to_all", false, &m->all_to_all);
    read_beside(cx, root);
    read_light(cx, root);
    read_host(cx, root);
    return !cx->json->failed;
}

bool fg_machine_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                      size_t len, FgMachine *out)
{
    FgArena *scratch = fg_arena_new();
    FgJsonCx json;
    fg_json_init(&json, scratch, diags);
    *out = (FgMachine){
        .name = name, .workspace_bytes = (uint64_t)32 << 20, .reserved_parts = RESERVED_PARTS};
    MachineCx cx = {.arena = arena, .json = &json, .machine = out};
    const FgJson *root = fg_json_parse(&json, name, text, len);
    bool ok = root && read_machine(&cx, diags, root);
    fg_arena_free(scratch);
    return ok;
}

/* ---- by name ---- */
static void report_unknown(FgArena *arena, FgDiags *diags, const char *name)
{
    uint32_t n;
    const char *const *names = fg_machine_preset_names(&n);
    FgBuf all;
    fg_buf_init(&all, arena);
    for (uint32_t i = 0; i < n; i++)
        fg_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    fg_diag(diags, FG_NOWHERE, FG_D_UNKNOWN_MACHINE, "no machine preset and no file is named '%s'",
            name);
    const char *near = fg_closest(name, names, n);
    if (near)
        fg_diag_note(diags, FG_NOWHERE, "did you mean '%s'?", near);
    fg_diag_note(diags, FG_NOWHERE, "the presets are %s", fg_buf_text(&all));
}

bool fg_machine_load(FgArena *arena, FgDiags *diags, const char *name_or_path, FgMachine *out)
{
    const char *preset = fg_machine_preset(name_or_path);
    if (preset)
        return fg_machine_parse(arena, diags, name_or_path, preset, strlen(preset), out);
    if (strcmp(name_or_path, "-") != 0 && access(name_or_path, F_OK) != 0) {
        report_unknown(arena, diags, name_or_path);
        return false;
    }
    char *text;
    size_t len;
    const char *error;
    if (fg_file_read(arena, name_or_path, &text, &len, &error))
        return fg_machine_parse(arena, diags, name_or_path, text, len, out);
    fg_diag(diags, FG_NOWHERE, FG_D_IO, "%s", error);
    return false;
}
