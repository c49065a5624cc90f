/* Lines are taken one by one, with nothing assumed of their length or of what ends them: a file is
 * what a user hands over. */
#include "runtime/cuda/gemm_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char heading[] = "foregather-gemm 1";

enum { LONGEST = 1024 }; /* of a line of ours: 15 numbers of 20 digits, 16 words, a time */

typedef struct Lines {
    const char *at, *end;
    const char *line; /* the current one, without what ends it */
    size_t bytes;
    size_t number;
    bool own_device, own_version; /* of the block that it stands in */
} Lines;

static bool next_line(Lines *lines)
{
    if (lines->at == lines->end)
        return false;
    size_t left = (size_t)(lines->end - lines->at);
    const char *stop = memchr(lines->at, '\n', left);
    lines->line = lines->at;
    lines->bytes = stop ? (size_t)(stop - lines->at) : left;
    lines->at = stop ? stop + 1 : lines->end;
    lines->number++;
    return true;
}

static bool is(const Lines *lines, const char *text)
{
    return lines->bytes == strlen(text) && memcmp(lines->line, text, lines->bytes) == 0;
}

/* What stands behind a word and a space, or NULL. */
static const char *behind(const Lines *lines, const char *word)
{
    size_t n = strlen(word);
    bool has = lines->bytes > n && memcmp(lines->line, word, n) == 0 && lines->line[n] == ' ';
    return has ? lines->line + n + 1 : NULL;
}

/* A number of digits of a base, a space or the end behind it. */
static bool take_number(const char **at, int base, uint64_t *out)
{
    char *end;
    bool digit = (**at >= '0' && **at <= '9') || (base == 16 && **at >= 'a' && **at <= 'f');
    if (!digit)
        return false;
    *out = strtoull(*at, &end, base);
    if (*end != ' ' && *end != '\0')
        return false;
    *at = end + (*end == ' ');
    return true;
}

static bool take_word(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0 || (*at)[n] != ' ')
        return false;
    *at += n + 1;
    return true;
}

static bool parse_entry(const char *text, size_t bytes, FgGemmEntry *out)
{
    char line[LONGEST];
    const char *at = line;
    char *end;
    uint64_t word;
    if (bytes >= sizeof line || memchr(text, '\0', bytes))
        return false;
    memcpy(line, text, bytes);
    line[bytes] = '\0';
    for (int i = 0; i < FG_GEMM_KEY_NUMBERS; i++)
        if (!take_number(&at, 10, &out->key[i]))
            return false;
    if (!take_word(&at, "algo"))
        return false;
    for (int i = 0; i < FG_GEMM_ALGO_WORDS; i++) {
        if (!take_number(&at, 16, &word) || word > UINT32_MAX)
            return false;
        out->algo[i] = (uint32_t)word;
    }
    if (!take_word(&at, "us") || *at < '0' || *at > '9')
        return false;
    out->us = strtod(at, &end);
    return *end == '\0' && out->us <= 1e12;
}

static bool add(FgGemmFile *file, const FgGemmEntry *entry)
{
    for (size_t i = 0; i < file->n; i++)
        if (memcmp(file->entries[i].key, entry->key, sizeof entry->key) == 0) {
            file->entries[i] = *entry;
            return true;
        }
    if (file->n == file->room) {
        size_t room = file->room ? 2 * file->room : 32;
        FgGemmEntry *grown = realloc(file->entries, room * sizeof *grown);
        if (!grown)
            return false;
        file->entries = grown;
        file->room = room;
    }
    file->entries[file->n++] = *entry;
    return true;
}

/* Whether a line behind the first is one of the file; `*is_entry` with what it holds. Follows the
 * block that it stands in. */
static bool read_line(Lines *lines, const char *device, uint64_t version, bool *is_entry,
                      FgGemmEntry *out)
{
    const char *rest;
    *is_entry = false;
    if ((rest = behind(lines, "device")) != NULL) {
        size_t n = (size_t)(lines->line + lines->bytes - rest);
        lines->own_device = n == strlen(device) && memcmp(rest, device, n) == 0;
        lines->own_version = false; /* until the block says */
        return true;
    }
    if ((rest = behind(lines, "cublaslt")) != NULL) {
        char text[32] = "";
        const char *at = text;
        uint64_t number;
        size_t n = (size_t)(lines->line + lines->bytes - rest);
        if (n >= sizeof text)
            return false;
        memcpy(text, rest, n);
        if (!take_number(&at, 10, &number) || *at)
            return false;
        lines->own_version = number == version;
        return true;
    }
    if ((rest = behind(lines, "gemm")) != NULL) {
        *is_entry = true;
        return parse_entry(rest, (size_t)(lines->line + lines->bytes - rest), out);
    }
    return lines->bytes == 0 || is(lines, heading); /* files may be put one behind the other */
}

bool fg_gemm_file_parse(FgGemmFile *out, const char *text, size_t bytes, const char *device,
                        uint64_t version, char *error, size_t error_bytes)
{
    Lines lines = {.at = text, .end = text + bytes};
    bool good = next_line(&lines) && is(&lines, heading), is_entry, room = true;
    FgGemmEntry entry;
    *out = (FgGemmFile){0};
    while (good && next_line(&lines)) {
        good = read_line(&lines, device, version, &is_entry, &entry);
        if (!good || !is_entry)
            continue;
        if (lines.own_device && lines.own_version)
            good = room = add(out, &entry);
        else
            out->n_other++;
    }
    if (good)
        return true;
    snprintf(error, error_bytes, room ? "line %zu: not a line of a %s file" : "out of memory",
             lines.number ? lines.number : 1, heading);
    fg_gemm_file_free(out);
    return false;
}

void fg_gemm_file_free(FgGemmFile *file)
{
    free(file->entries);
    *file = (FgGemmFile){0};
}

/* ---- writing ---- */

/* The older text's lines, but for those of the device and version: `device` and `cublaslt` lines
 * are held back until an entry is to be kept. */
static void keep_others(FILE *out, const char *older, size_t bytes, const char *device,
                        uint64_t version)
{
    Lines lines = {.at = older, .end = older + bytes}, block[2] = {{0}};
    FgGemmEntry entry;
    bool is_entry;
    while (next_line(&lines)) {
        if (!read_line(&lines, device, version, &is_entry, &entry))
            continue;
        if (behind(&lines, "device")) {
            block[0] = lines;
            block[1].line = NULL;
        } else if (behind(&lines, "cublaslt")) {
            block[1] = lines;
        }
        if (!is_entry || (lines.own_device && lines.own_version))
            continue;
        for (int i = 0; i < 2; i++) {
            if (block[i].line)
                fprintf(out, "%.*s\n", (int)block[i].bytes, block[i].line);
            block[i].line = NULL;
        }
        fprintf(out, "%.*s\n", (int)lines.bytes, lines.line);
    }
}

void fg_gemm_file_write(FILE *out, const char *older, size_t older_bytes, const char *device,
                        uint64_t version, const FgGemmEntry *entries, size_t n)
{
    fprintf(out, "%s\n", heading);
    if (older)
        keep_others(out, older, older_bytes, device, version);
    fprintf(out, "device %s\ncublaslt %" PRIu64 "\n", device, version);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "gemm");
        for (int k = 0; k < FG_GEMM_KEY_NUMBERS; k++)
            fprintf(out, " %" PRIu64, entries[i].key[k]);
        fprintf(out, " algo");
        for (int k = 0; k < FG_GEMM_ALGO_WORDS; k++)
            fprintf(out, " %08" PRIx32, entries[i].algo[k]);
        fprintf(out, " us %.3f\n", entries[i].us);
    }
}
