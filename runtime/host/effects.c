/* A recursive-descent evaluator, straight on the text: an effects string is short, and only checked
 * mode reads it. */
#include "runtime/host/effects.h"

#include <ctype.h>
#include <string.h>

#include "runtime/host/elements.h"

typedef struct Reader {
    const char *at;
    const FgCall *call;
    const FgRtProgram *program;
    uint32_t rank;
    bool bad; /* nothing is read any more */
} Reader;

static void skip_space(Reader *reader)
{
    while (*reader->at == ' ')
        reader->at++;
}

static bool accept(Reader *reader, char sign)
{
    skip_space(reader);
    if (reader->bad || *reader->at != sign)
        return false;
    reader->at++;
    return true;
}

static void expect(Reader *reader, char sign)
{
    if (!accept(reader, sign))
        reader->bad = true;
}

typedef struct Word {
    const char *text;
    size_t length;
} Word;

static bool is_word_sign(char sign)
{
    return isalnum((unsigned char)sign) || sign == '_';
}

static Word read_word(Reader *reader)
{
    skip_space(reader);
    Word word = {reader->at, 0};
    while (is_word_sign(word.text[word.length]))
        word.length++;
    if (reader->bad || word.length == 0) {
        reader->bad = true;
        return (Word){reader->at, 0};
    }
    reader->at += word.length;
    return word;
}

static bool word_is(Word word, const char *text)
{
    return strlen(text) == word.length && memcmp(text, word.text, word.length) == 0;
}

/* The index of an argument in "(a, b, ...)". */
static uint32_t find_arg(Reader *reader, Word word)
{
    const char *name = reader->call->info->args + 1;
    for (uint32_t i = 0; i < reader->call->n_args; i++) {
        size_t length = strcspn(name, ",)");
        if (length == word.length && memcmp(name, word.text, length) == 0)
            return i;
        name += length;
        name += strspn(name, ", ");
    }
    reader->bad = true;
    reader->at = word.text;
    return 0;
}

static uint64_t read_sum(Reader *reader);

static uint64_t read_factor(Reader *reader)
{
    if (accept(reader, '(')) {
        uint64_t value = read_sum(reader);
        expect(reader, ')');
        return value;
    }
    Word word = read_word(reader);
    if (reader->bad)
        return 0;
    if (isdigit((unsigned char)*word.text)) {
        uint64_t value = 0;
        for (size_t i = 0; i < word.length; i++)
            value = 10 * value + (uint64_t)(word.text[i] - '0');
        return value;
    }
    if (word_is(word, "ranks"))
        return reader->program->ranks;
    if (word_is(word, "rank"))
        return reader->rank;
    if (word_is(word, "size")) {
        expect(reader, '(');
        uint32_t arg = find_arg(reader, read_word(reader));
        expect(reader, ')');
        return reader->bad ? 0 : fg_rt_dtype_bytes(reader->call->args[arg]);
    }
    uint32_t arg = find_arg(reader, word);
    return reader->bad ? 0 : reader->call->args[arg];
}

static uint64_t read_term(Reader *reader)
{
    uint64_t value = read_factor(reader);
    for (;;) {
        if (accept(reader, '*')) {
            uint64_t factor = read_factor(reader);
            if (factor && value > UINT64_MAX / factor)
                reader->bad = true;
            value *= factor;
        } else if (accept(reader, '/')) {
            uint64_t divisor = read_factor(reader);
            if (divisor == 0)
                reader->bad = true;
            else
                value /= divisor;
        } else {
            return value;
        }
    }
}

static uint64_t read_sum(Reader *reader)
{
    uint64_t value = read_term(reader);
    while (accept(reader, '+')) {
        uint64_t more = read_term(reader);
        if (value > UINT64_MAX - more)
            reader->bad = true;
        value += more;
    }
    return value;
}

static bool effect_kind(Word word, FgEffectKind *kind, bool *fresh)
{
    static const struct {
        const char *name;
        FgEffectKind kind;
    } kinds[] = {{"read", FG_EFFECT_READ},       {"write", FG_EFFECT_WRITE},
                 {"update", FG_EFFECT_UPDATE},   {"fresh", FG_EFFECT_WRITE},
                 {"release", FG_EFFECT_RELEASE}, {"inplace", FG_EFFECT_INPLACE},
                 {"comm", FG_EFFECT_COMM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (word_is(word, kinds[i].name)) {
            *kind = kinds[i].kind;
            *fresh = word_is(word, "fresh");
            return true;
        }
    return false;
}

/* Rules about arguments are the proof's (docs/proof.md); here they only must be well formed. */
static bool read_rule(Reader *reader)
{
    expect(reader, '(');
    do
        read_sum(reader);
    while (accept(reader, ','));
    expect(reader, ')');
    return false;
}

bool fg_call_has_rows(const FgCall *call)
{
    return strcmp(call->info->name, "custom") == 0 || strcmp(call->info->name, "fused") == 0;
}

/* The rows of a call of a function, or NULL when they are none of the table. */
static const FgRtOperand *custom_rows(const FgCall *call, const FgRtProgram *program)
{
    if (!fg_call_has_rows(call) || call->args[1] > program->n_operands ||
        call->args[2] > program->n_operands - call->args[1])
        return NULL;
    return program->operands + call->args[1];
}

static bool same_memory(const FgRtOperand *a, const FgRtOperand *b)
{
    return a->offset == b->offset && a->dtype == b->dtype && a->elements == b->elements;
}

/* Reads and writes of a function, one a row of its operands. Of a chain the last is the result;
 * what may be its memory goes by the result's argument, the others by another one. */
static int32_t read_operands(Reader *reader, FgEffect *out, bool chain)
{
    uint64_t count = reader->call->args[2];
    const FgRtOperand *rows = custom_rows(reader->call, reader->program);
    read_rule(reader);
    if (!rows || reader->bad ||
        (chain && (count == 0 || rows[count - 1].elements != reader->call->args[3]))) {
        reader->bad = true;
        return 0;
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] = (FgEffect){.kind = rows[i].written ? FG_EFFECT_WRITE : FG_EFFECT_READ,
                            .arg = chain && !same_memory(&rows[i], &rows[count - 1]) ? 2 : 1,
                            .begin = rows[i].offset,
                            .bytes = rows[i].elements * fg_rt_dtype_bytes(rows[i].dtype)};
    if (!chain)
        return (int32_t)count;
    out[count] = (FgEffect){.kind = FG_EFFECT_INPLACE, .arg = 1, .other = 1};
    return (int32_t)count + 1;
}

/* The next effect, and how many it is: none where its buffer is absent. */
static int32_t read_effect(Reader *reader, FgEffect *effect)
{
    bool fresh = false;
    *effect = (FgEffect){0};
    Word kind = read_word(reader);
    if (word_is(kind, "atmost") || word_is(kind, "strided"))
        return read_rule(reader);
    if (word_is(kind, "operands") || word_is(kind, "elementwise"))
        return read_operands(reader, effect, word_is(kind, "elementwise"));
    if (!effect_kind(kind, &effect->kind, &fresh))
        reader->bad = true;
    expect(reader, '(');
    Word name = read_word(reader);
    if (effect->kind == FG_EFFECT_COMM) {
        effect->arg = word_is(name, "parts") ? 2 : word_is(name, "reduce");
        expect(reader, ')');
        return true;
    }
    effect->arg = find_arg(reader, name);
    expect(reader, ',');
    if (effect->kind == FG_EFFECT_INPLACE) {
        effect->other = find_arg(reader, read_word(reader));
        expect(reader, ')');
        return true;
    }
    effect->bytes = read_sum(reader);
    if (fresh) {
        expect(reader, ',');
        uint32_t flag = find_arg(reader, read_word(reader));
        if (!reader->bad && reader->call->args[flag])
            effect->kind = FG_EFFECT_UPDATE;
    }
    expect(reader, ')');
    if (reader->bad)
        return false;
    effect->begin = reader->call->args[effect->arg];
    effect->scratch = word_is(name, "ws");
    return effect->begin != FG_RT_NONE;
}

uint32_t fg_effects_count(const char *effects)
{
    uint32_t count = 0;
    for (; *effects; effects++)
        count += *effects == '(';
    return count;
}

uint32_t fg_effects_room(const FgCall *call, const FgRtProgram *program)
{
    uint32_t count = fg_effects_count(call->info->effects);
    return custom_rows(call, program) ? count + (uint32_t)call->args[2] : count;
}

int32_t fg_effects_read(const FgCall *call, const FgRtProgram *program, uint32_t rank,
                        FgEffect *out, const char **bad)
{
    Reader reader = {call->info->effects, call, program, rank, false};
    int32_t n = 0;
    for (skip_space(&reader); *reader.at && !reader.bad; skip_space(&reader))
        n += read_effect(&reader, &out[n]);
    *bad = reader.at;
    return reader.bad ? -1 : n;
}
