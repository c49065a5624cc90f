/* The parser: text -> module with the same ids.
 *
 * A first look over the tokens finds the greatest ids, so that values and nodes written without one
 * (by hand) get fresh ids. Then one pass over the statements. Values may be mentioned before they
 * are made; at the end, what was mentioned and never made is reported. Ids larger than the text
 * warrants are refused, so that a short bad text cannot ask for much memory. */
#include "ir/parse.h"

#include <string.h>

typedef struct Statement {
    const char *keyword;
    bool (*parse)(FgParser *p);
} Statement;

static bool parse_loss(FgParser *p)
{
    return fg_parse_value(p, &p->m->loss) && fg_parse_line_end(p);
}

/* ids nodes(n) values(n): the tables' lengths, when ids at their end are not in use. */
static bool parse_ids(FgParser *p)
{
    while (p->t.kind == FG_TOKEN_WORD) {
        bool nodes = fg_parse_is_word(p, "nodes");
        uint32_t n;
        if (!nodes && !fg_parse_is_word(p, "values"))
            return fg_parse_expected(p, "nodes or values");
        fg_parse_next(p);
        FgLoc loc = p->t.loc;
        if (!fg_parse_punct(p, '(') || !fg_parse_u32(p, &n) || !fg_parse_punct(p, ')'))
            return false;
        if (n > p->id_limit)
            return fg_parse_error(p, loc, "more ids than the text warrants");
        if (n && nodes)
            fg_parse_room_for_node(p, n - 1);
        else if (n)
            fg_parse_room_for_value(p, n - 1);
    }
    return fg_parse_line_end(p);
}

static const Statement statements[] = {
    {"module", fg_parse_module_line}, {"memory", fg_parse_memory},
    {"plan", fg_parse_plan},          {"param", fg_parse_param},
    {"input", fg_parse_input},        {"bucket", fg_parse_bucket},
    {"state", fg_parse_state},        {"loss", parse_loss},
    {"func", fg_parse_func},          {"ids", parse_ids},
};

static bool parse_statement(FgParser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (fg_parse_is_word(p, statements[i].keyword)) {
            fg_parse_next(p);
            return statements[i].parse(p);
        }
    }
    return fg_parse_expected(
        p, "a statement: memory, plan, param, input, bucket, state, loss, func or ids");
}

static void parse_statements(FgParser *p)
{
    bool first = true;
    fg_parse_next(p);
    while (p->t.kind != FG_TOKEN_END) {
        if (p->t.kind == FG_TOKEN_LINE) {
            fg_parse_next(p);
            continue;
        }
        if (first != fg_parse_is_word(p, "module"))
            fg_parse_error(p, p->t.loc,
                           first ? "the text must begin with a module line"
                                 : "a second module line");
        if (!parse_statement(p))
            fg_parse_recover(p);
        first = false;
    }
    if (first)
        fg_parse_error(p, p->t.loc, "the text must begin with a module line");
}

/* Fresh ids begin after every id that the text mentions. */
static void find_ids(FgParser *p, FgLexer lex)
{
    lex.diags = NULL;
    for (FgToken t = fg_lex(&lex); t.kind != FG_TOKEN_END; t = fg_lex(&lex)) {
        if (t.kind == FG_TOKEN_NODE && t.whole < p->id_limit && t.whole >= p->next_node)
            p->next_node = (uint32_t)t.whole + 1;
        if (t.kind == FG_TOKEN_VALUE && t.has_id && t.whole < p->id_limit &&
            t.whole >= p->next_value)
            p->next_value = (uint32_t)t.whole + 1;
    }
}

/* Values of parameters and inputs that no other statement declared are what their line says. */
static void settle_bound(FgParser *p)
{
    for (uint32_t i = 0; i < p->m->params.len; i++) {
        if (p->m->params.data[i].value != FG_NO_ID)
            p->seen.data[p->m->params.data[i].value].declared = true;
    }
    for (uint32_t i = 0; i < p->m->inputs.len; i++) {
        if (p->m->inputs.data[i].value != FG_NO_ID)
            p->seen.data[p->m->inputs.data[i].value].declared = true;
    }
}

static void report_undeclared(FgParser *p)
{
    for (uint32_t i = 0; i < p->seen.len; i++) {
        const FgSeen *seen = &p->seen.data[i];
        if (seen->first.file && !seen->declared)
            fg_parse_error(p, seen->first, "nothing makes the value %%%s.%u",
                           seen->name ? seen->name : "v", i);
    }
}

FgModule *fg_module_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                          size_t len)
{
    uint32_t before = fg_diags_errors(diags);
    FgParser p = {.m = fg_module_new(arena, diags, "")};
    p.m->text_source = fg_diags_source(diags, name, text, len);
    p.id_limit = len < UINT32_MAX / 2 ? (uint64_t)len + 1024 : UINT32_MAX / 2;
    fg_map_init(&p.symbols, arena);
    fg_map_init(&p.files, arena);
    fg_lexer_init(&p.lex, arena, p.m->intern, diags, p.m->text_source, text, len);
    find_ids(&p, p.lex);
    parse_statements(&p);
    settle_bound(&p);
    if (fg_diags_errors(diags) == before)
        report_undeclared(&p);
    return fg_diags_errors(diags) == before ? p.m : NULL;
}
