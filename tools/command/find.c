/* Nodes by name. A name is whatever a user has seen: a bucket or a node in a dump, a parameter in a
 * weight file, a layer. Names are matched whole or between dots: `layers.3` is a part of
 * `model.layers.3.q_proj` and not of `layers.30`. */
#include "tools/command/explain.h"

#include "base/map.h"
#include "passes/liveness.h"
#include "passes/lower.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NEAR 3

/* Is `word` a run of whole dotted parts of `name`? */
static bool is_part(const char *name, const char *word)
{
    size_t n = strlen(word);
    for (const char *hit = strstr(name, word); n && hit; hit = strstr(hit + 1, word))
        if ((hit == name || hit[-1] == '.') && (hit[n] == 0 || hit[n] == '.'))
            return true;
    return false;
}

const FgFunc *fg_node_func(const FgModule *m, uint32_t node, uint32_t *out_at)
{
    for (uint32_t f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++)
            if (m->funcs.data[f].order.data[i] == node) {
                *out_at = i;
                return &m->funcs.data[f];
            }
    return NULL;
}

static bool is_parameter(const FgParam *param, const char *word)
{
    bool found = strcmp(param->name, word) == 0;
    for (uint32_t i = 0; i < param->n_tied; i++)
        found = found || strcmp(param->tied[i], word) == 0;
    return found;
}

/* ---- by id ---- */
static bool find_id(FgArena *arena, const FgModule *m, const char *digits, FgFound *out)
{
    char *end;
    unsigned long id = strtoul(digits, &end, 10);
    uint32_t at;
    if (*end || end == digits || id >= m->nodes.len || !fg_node_func(m, (uint32_t)id, &at))
        return false;
    fg_vec_push(arena, &out->details, (uint32_t)id);
    out->what = fg_arena_printf(arena, "node #%lu", id);
    return true;
}

/* ---- by name ---- */
typedef struct Search {
    FgArena *arena;
    const FgModule *m;
    const char *word;
    bool *buckets; /* by index: it is meant */
    FgFound *out;
} Search;

static void find_buckets(Search *s)
{
    const FgModule *m = s->m;
    s->buckets = FG_NEW_ARRAY(s->arena, bool, m->buckets.len + 1);
    for (uint32_t b = 0; b < m->buckets.len; b++) {
        const FgBucket *bucket = &m->buckets.data[b];
        s->buckets[b] = is_part(bucket->name, s->word);
        if (strcmp(bucket->name, s->word) == 0)
            s->out->what = fg_arena_printf(s->arena, "bucket %s: %u parameter%s", bucket->name,
                                           bucket->n_params, bucket->n_params == 1 ? "" : "s");
    }
    for (uint32_t p = 0; p < m->params.len; p++) {
        const FgParam *param = &m->params.data[p];
        if (param->bucket == FG_NO_ID || !is_parameter(param, s->word))
            continue;
        s->buckets[param->bucket] = true;
        if (!*s->out->what)
            s->out->what = fg_arena_printf(s->arena, "parameter %s in bucket %s", param->name,
                                           m->buckets.data[param->bucket].name);
    }
}

/* Where no bucket is called so (a layer, while modules or small parameters of all layers have
 * buckets): those that hold its parameters. */
static void find_holders(Search *s)
{
    const FgModule *m = s->m;
    for (uint32_t b = 0; b < m->buckets.len; b++)
        if (s->buckets[b])
            return;
    for (uint32_t p = 0; p < m->params.len; p++)
        if (m->params.data[p].bucket != FG_NO_ID && is_part(m->params.data[p].name, s->word))
            s->buckets[m->params.data[p].bucket] = true;
}

static void find_in(Search *s, const FgFunc *func)
{
    for (uint32_t i = 0; i < func->order.len; i++) {
        const FgNode *node = &s->m->nodes.data[func->order.data[i]];
        if (fg_node_is_name(node) || node->op == FG_OP_release || node->op == FG_OP_grad_buffer)
            continue;
        bool exact = strcmp(node->name, s->word) == 0;
        bool bucket = node->bucket != FG_NO_ID && s->buckets[node->bucket];
        bool part = is_part(node->name, s->word), moves = node->stream != FG_STREAM_COMPUTE;
        if (exact || (moves && (bucket || part)))
            fg_vec_push(s->arena, &s->out->details, node->id);
        else if (part)
            fg_vec_push(s->arena, &s->out->together, node->id);
    }
}

/* Of a bucket that nothing gathers, reduces or updates (a table that stays with its owners,
 * frozen): the nodes that read its slice. */
static void find_readers(Search *s, const FgFunc *func)
{
    for (uint32_t i = 0; i < func->order.len; i++) {
        const FgNode *node = &s->m->nodes.data[func->order.data[i]];
        bool reads = false;
        for (uint32_t k = 0; k < node->n_operands && !fg_node_is_name(node); k++) {
            uint32_t v = node->operands[k];
            const FgValue *root =
                v == FG_NO_ID ? NULL : &s->m->values.data[s->m->values.data[v].root];
            reads |= root && root->kind == FG_VALUE_STATE && root->role == FG_ROLE_SHARD &&
                     s->buckets[root->index];
        }
        if (reads)
            fg_vec_push(s->arena, &s->out->together, node->id);
    }
}

/* ---- names that a user may mean ---- */
typedef struct Names {
    FgArena *arena;
    FgStrVec all; /* each once */
    FgMap seen;
} Names;

static void add_name(Names *names, const char *name)
{
    if (*name && fg_map_add(&names->seen, name, 0))
        fg_vec_push(names->arena, &names->all, name);
}

/* A name, and each of its parts between dots: `layers`, `q_proj`. Numbers alone are ids. */
static void add_parts(Names *names, const char *name)
{
    add_name(names, name);
    for (const char *part = name; *part;) {
        size_t n = strcspn(part, ".");
        if (n && strspn(part, "0123456789") < n)
            add_name(names, fg_arena_strndup(names->arena, part, n));
        part += n + (part[n] == '.');
    }
}

static FgStrVec all_names(FgArena *arena, const FgModule *m)
{
    Names names = {.arena = arena};
    fg_map_init(&names.seen, arena);
    for (uint32_t b = 0; b < m->buckets.len; b++)
        add_parts(&names, m->buckets.data[b].name);
    for (uint32_t p = 0; p < m->params.len; p++)
        add_parts(&names, m->params.data[p].name);
    for (uint32_t f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++) {
            const FgNode *node = &m->nodes.data[m->funcs.data[f].order.data[i]];
            add_parts(&names, node->name);
            /* A layer, also without what stands before it: model.layers.3, layers.3. */
            const char *place = node->layer >= 0 ? fg_node_place(arena, node) : NULL;
            for (; place && strchr(place, '.'); place = strchr(place, '.') + 1)
                add_name(&names, place);
        }
    return names.all;
}

/* "'a', 'b' or 'c'": the nearest names. */
static const char *nearest(FgArena *arena, const FgModule *m, const char *word)
{
    FgStrVec names = all_names(arena, m);
    FgBuf text;
    fg_buf_init(&text, arena);
    const char *near[MAX_NEAR];
    uint32_t n = 0;
    while (n < MAX_NEAR && (near[n] = fg_closest(word, names.data, names.len))) {
        for (uint32_t i = 0; i < names.len; i++)
            if (names.data[i] == near[n])
                names.data[i] = names.data[--names.len];
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        fg_buf_printf(&text, "%s'%s'", i == 0 ? "" : i + 1 < n ? ", " : " or ", near[i]);
    return fg_buf_text(&text);
}

bool fg_find_nodes(FgArena *arena, const FgModule *m, const char *name, FgFound *out,
                   const char **out_near)
{
    *out = (FgFound){.what = ""};
    const char *word = *name == '@' ? name + 1 : name;
    if (*word == '#' || (*word && word[strspn(word, "0123456789")] == 0)) {
        *out_near = "";
        return find_id(arena, m, *word == '#' ? word + 1 : word, out);
    }
    Search s = {arena, m, word, NULL, out};
    find_buckets(&s);
    find_holders(&s);
    for (uint32_t f = 0; f < m->funcs.len; f++)
        if (fg_func_repeats(m, m->funcs.data[f].name) > 0.0)
            find_in(&s, &m->funcs.data[f]);
    for (uint32_t f = 0; f < m->funcs.len && out->details.len + out->together.len == 0; f++)
        if (fg_func_repeats(m, m->funcs.data[f].name) > 0.0)
            find_readers(&s, &m->funcs.data[f]);
    *out_near = out->details.len + out->together.len ? "" : nearest(arena, m, word);
    return out->details.len + out->together.len > 0;
}
