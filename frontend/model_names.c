/* Names: one map a scope, looked up from the innermost scope outwards, then among the full names of
 * parameters.
 *
 * A carried value is an alias: in the first iteration of its repeat it stands for a name outside,
 * in iteration i for a name of iteration i - 1, after the repeat for a name of the last iteration.
 * Aliases are followed only after all names are known, which is what lets nodes stand in any order.
 */
#include "frontend/model_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

bool fg_model_check_name(ModelCx *cx, FgLoc loc, const char *name)
{
    bool ok = *name != '\0';
    for (const char *p = name; *p && ok; p++)
        ok = isalnum((unsigned char)*p) || strchr("_.-/:", *p);
    if (!ok)
        fg_json_report(cx->json, loc, FG_D_BAD_VALUE,
                       "'%s' is no name: letters, digits and _ . - / : make one", name);
    return ok;
}

static const Scope *find_index(const Scope *scope, const char *name, size_t n)
{
    for (; scope; scope = scope->outer) {
        if (scope->index && strlen(scope->index) == n && strncmp(scope->index, name, n) == 0)
            return scope;
    }
    return NULL;
}

const char *fg_model_substitute(ModelCx *cx, const Scope *scope, FgLoc loc, const char *text)
{
    if (!strchr(text, '{'))
        return text;
    FgBuf buf;
    fg_buf_init(&buf, cx->arena);
    for (const char *p = text; *p;) {
        size_t plain = strcspn(p, "{");
        fg_buf_put(&buf, p, plain);
        p += plain;
        if (!*p)
            break;
        size_t n = strcspn(p + 1, "}");
        const Scope *owner = p[1 + n] ? find_index(scope, p + 1, n) : NULL;
        if (!owner) {
            fg_json_report(cx->json, loc, FG_D_BAD_VALUE,
                           "'{%.*s}' is the index of no repeat around it", (int)n, p + 1);
            return NULL;
        }
        fg_buf_printf(&buf, "%" PRId64, owner->iteration);
        p += n + 2;
    }
    return fg_buf_text(&buf);
}

const char *fg_model_name(ModelCx *cx, const Scope *scope, const FgJson *text)
{
    const char *name = fg_model_substitute(cx, scope, text->loc, text->text);
    return name && fg_model_check_name(cx, text->loc, name) ? name : NULL;
}

static bool add_name(ModelCx *cx, FgMap *map, FgStrVec *list, const Def *def, const char *index)
{
    uint32_t before;
    if (fg_map_get(map, def->name, &before)) {
        if (fg_json_report(cx->json, def->loc, FG_D_DUPLICATE_NAME, "'%s' is defined twice",
                           def->name)) {
            if (memcmp(&cx->defs.data[before].loc, &def->loc, sizeof def->loc) != 0)
                fg_diag_note(cx->json->diags, cx->defs.data[before].loc, "first defined here");
            else if (index)
                fg_diag_note(
                    cx->json->diags, FG_NOWHERE,
                    "in a repeat, put the index into \"prefix\" or into the name: \"{%s}\"", index);
        }
        return false;
    }
    fg_map_add(map, def->name, cx->defs.len);
    fg_vec_push(cx->arena, list, def->name);
    return true;
}

bool fg_model_define(ModelCx *cx, Scope *scope, Def def)
{
    if (!add_name(cx, &scope->names, &scope->list, &def, NULL))
        return false;
    fg_vec_push(cx->arena, &cx->defs, def);
    return true;
}

bool fg_model_define_param(ModelCx *cx, const Scope *scope, Def def)
{
    if (!add_name(cx, &cx->param_names, &cx->param_list, &def, scope->index))
        return false;
    fg_vec_push(cx->arena, &cx->defs, def);
    return true;
}

static void report_undefined(ModelCx *cx, const Scope *scope, FgLoc loc, const char *name)
{
    if (!fg_json_report(cx->json, loc, FG_D_UNDEFINED_VALUE, "nothing defines '%s'", name))
        return;
    FgStrVec all = {0};
    for (; scope; scope = scope->outer) {
        for (uint32_t i = 0; i < scope->list.len; i++)
            fg_vec_push(cx->arena, &all, scope->list.data[i]);
    }
    for (uint32_t i = 0; i < cx->param_list.len; i++)
        fg_vec_push(cx->arena, &all, cx->param_list.data[i]);
    fg_json_suggest(cx->json, name, all.data, all.len);
}

/* The definition that a name stands for, perhaps an alias; FG_NO_ID after a report. */
static uint32_t find(ModelCx *cx, const Scope *scope, FgLoc loc, const char *name)
{
    uint32_t def;
    for (const Scope *s = scope; s; s = s->outer) {
        if (fg_map_get(&s->names, name, &def))
            return def;
    }
    if (fg_map_get(&cx->param_names, name, &def))
        return def;
    report_undefined(cx, scope, loc, name);
    return FG_NO_ID;
}

/* One step along an alias. */
static uint32_t follow(ModelCx *cx, const Def *alias)
{
    const char *name = fg_model_name(cx, alias->scope, alias->target);
    return name ? find(cx, alias->scope, alias->target->loc, name) : FG_NO_ID;
}

uint32_t fg_model_resolve(ModelCx *cx, uint32_t start)
{
    uint32_t end = start, steps = 0;
    while (end != FG_NO_ID && cx->defs.data[end].kind == DEF_ALIAS) {
        const Def *alias = &cx->defs.data[end];
        if (++steps > cx->defs.len) {
            fg_json_report(cx->json, alias->target->loc, FG_D_CYCLE,
                           "the carried value '%s' starts from itself", alias->name);
            end = FG_NO_ID;
            break;
        }
        end = follow(cx, alias);
    }
    bool failed = end == FG_NO_ID || cx->defs.data[end].kind == DEF_FAILED;
    /* Remembered. Aliases are resolved in the order of their making, so each step is found done: no
     * long walks. */
    Def *known = &cx->defs.data[start];
    known->kind = failed ? DEF_FAILED : cx->defs.data[end].kind;
    known->index = failed ? 0 : cx->defs.data[end].index;
    known->result = failed ? 0 : cx->defs.data[end].result;
    return failed ? FG_NO_ID : start;
}

uint32_t fg_model_lookup(ModelCx *cx, const Scope *scope, FgLoc loc, const char *name)
{
    uint32_t def = find(cx, scope, loc, name);
    return def == FG_NO_ID ? FG_NO_ID : fg_model_resolve(cx, def);
}
