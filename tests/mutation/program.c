/* Programs to break: what the command does from a model file to C text, and the lines of that. */
#include "program.h"

#include "codegen/codegen.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "readback/signature.h"

#include <stdio.h>
#include <string.h>

#define INCLUDE FG_SOURCE_DIR "/runtime"

static bool say(FgDiags *diags, FgArena *arena, const char *what)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_diags_render(diags, &text);
    printf("%s\n%s\n", what, fg_buf_text(&text));
    return false;
}

static bool read_signature(void *user, FgArena *arena, const FgSignatureRequest *request,
                           FgSignature *out, const char **out_error, FgLoc *out_loc)
{
    return fg_signature_read(user, arena, request, out, out_error, out_loc);
}

static bool compile(FgArena *arena, const Variant *v, FgCompiled *out)
{
    FgDiags *diags = fg_diags_new(arena);
    FgMachine machine;
    FgNumerics numerics = {.compute = v->precision,
                           .wire = v->precision,
                           .clip = v->clip,
                           .accumulate = v->accumulate ? v->accumulate : 1,
                           .accumulate_in = v->accumulate_in,
                           .vocab = v->vocab,
                           .chunk = v->chunk};
    numerics.shard = fg_slice_dtype(&numerics);
    static char include[] = INCLUDE;
    FgModelOptions options = {
        .numerics = numerics, .read_signature = read_signature, .signature_user = include};
    FgCompileOptions how = {.schedule = v->schedule,
                            .recompute = v->recompute,
                            .reduce = v->reduce,
                            .memory_bytes = UINT64_MAX,
                            .offload = v->offload};
    if (!fg_machine_load(arena, diags, v->machine ? v->machine : "host", &machine))
        return say(diags, arena, v->model);
    fg_machine_set_ranks(arena, &machine, v->ranks);
    const char *path = fg_arena_printf(arena, "%s/%s", FG_SOURCE_DIR, v->model);
    FgModule *graph = fg_model_load(arena, diags, path, &options);
    *out = (FgCompiled){0};
    bool ok = graph && fg_compile(arena, graph, &machine, &numerics, &how, out) && out->module;
    return ok || say(diags, arena, v->model);
}

static const char *emit(FgArena *arena, const FgCompiled *c, bool cuda)
{
    FgEmitInfo info = {.version = "0", .source = "model.json", .fingerprint = c->fingerprint};
    info.memory_bytes = c->memory_bytes;
    info.reserved_bytes = c->reserved_bytes;
    info.host_memory_bytes = c->host_memory_bytes;
    info.cuda = cuda;
    FgEmitRow ledger = {"all", c->module->state_bytes + c->module->arena_bytes};
    info.ledger = &ledger;
    info.n_ledger = 1;
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_emit_c(arena, c->module, &info, &text);
    return fg_buf_text(&text);
}

Verdict program_verdict(FgArena *arena, const char *text, size_t len, const FgModule *plan)
{
    FgDiags *diags = fg_diags_new(arena);
    FgReadback out;
    FgBuf said;
    FgReadbackRequest request = {"program.c", text, len, INCLUDE, plan};
    Verdict verdict = {fg_readback(arena, diags, &request, &out), ""};
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    verdict.said = fg_buf_text(&said);
    return verdict;
}

/* ---- lines ---- */

static void split_lines(Program *p)
{
    for (const char *at = p->text; *at;) {
        size_t len = strcspn(at, "\n");
        Line line = {.text = at, .len = len};
        line.is_call = len > 10 && !strncmp(at, "    fg_rt_", 10);
        fg_vec_push(p->arena, &p->lines, line);
        at += len + (at[len] == '\n');
    }
}

/* Gives every line its call and its body: calls of functions that others call stand in both, once
 * as a line. */
static bool find_calls(Program *p)
{
    FgRbEval eval = {.arena = p->arena, .diags = p->source.diags, .tables = &p->tables};
    for (uint32_t f = 0; f < p->source.funcs.len; f++) {
        const FgRbFunc *func = &p->source.funcs.data[f];
        for (uint32_t i = 0; i < func->calls.len; i++) {
            const FgRbCall *call = &func->calls.data[i];
            Line *line = &p->lines.data[call->loc.line - 1];
            if (!func->inlined)
                line->body = f;
            if (line->call)
                continue;
            line->call = call;
            if (!fg_rb_effects(&eval, call, &line->effects))
                return false;
        }
    }
    return true;
}

bool program_make(FgArena *arena, const Variant *variant, Program *out)
{
    FgCompiled compiled;
    *out = (Program){.arena = arena, .variant = variant};
    if (!compile(arena, variant, &compiled))
        return false;
    out->plan = compiled.module;
    out->text = emit(arena, &compiled, variant->machine != NULL);
    split_lines(out);
    FgDiags *diags = fg_diags_new(arena);
    FgReadbackRequest request = {"program.c", out->text, strlen(out->text), INCLUDE, NULL};
    if (!fg_rb_parse(arena, diags, &request, &out->source) ||
        !fg_rb_tables(&out->source, &out->tables) || !find_calls(out))
        return say(diags, arena, variant->title);
    Verdict verdict = program_verdict(arena, out->text, strlen(out->text), out->plan);
    if (!verdict.ok)
        printf("%s is not proved:\n%s\n", variant->title, verdict.said);
    return verdict.ok;
}

/* ---- questions ---- */

bool line_is(const Line *line, const char *entry)
{
    return line->call && !strcmp(line->call->entry->name, entry);
}

uint64_t line_arg(const Line *line, const char *name)
{
    return line->call ? fg_rb_arg(line->call, name, FG_RB_NONE) : FG_RB_NONE;
}

static bool touches(const Line *line, uint64_t at, uint64_t bytes, FgRbEffectKind kind)
{
    for (uint32_t i = 0; i < line->effects.len; i++) {
        const FgRbEffect *effect = &line->effects.data[i];
        bool counts = effect->kind == kind || effect->kind == FG_RB_UPDATE;
        if (counts && !effect->scratch && effect->at < at + bytes &&
            at < effect->at + effect->bytes)
            return true;
    }
    return false;
}

bool line_reads(const Line *line, uint64_t at, uint64_t bytes)
{
    return touches(line, at, bytes, FG_RB_READ);
}

bool line_writes(const Line *line, uint64_t at, uint64_t bytes)
{
    return touches(line, at, bytes, FG_RB_WRITE);
}
