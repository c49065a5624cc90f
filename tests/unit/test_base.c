/* Arena, vectors, maps, texts, diagnostics, files. */
#include "base/checked.h"
#include "base/diag.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void arena(int *failures)
{
    FgArena *a = fg_arena_new();
    for (int round = 0; round < 3; round++) {
        for (size_t size = 0; size < 40000; size = size * 2 + 1) {
            unsigned char *p = fg_arena_alloc(a, size);
            CHECK((uintptr_t)p % 16 == 0);
            for (size_t i = 0; i < size; i++)
                *failures += p[i] != 0;
            memset(p, 0xcd, size);
        }
        fg_arena_reset(a);
    }
    /* A large allocation, then a small one, then all again out of the kept blocks. */
    char *large = fg_arena_alloc(a, (size_t)20 << 20);
    large[((size_t)20 << 20) - 1] = 1;
    CHECK_STR(fg_arena_strndup(a, "abcdef", 3), "abc");
    CHECK_STR(fg_arena_printf(a, "%s-%d", "x", 7), "x-7");
    char *long_text = fg_arena_printf(a, "%0*d", 1000, 5);
    CHECK_EQ_U64(strlen(long_text), 1000);
    CHECK(long_text[999] == '5');
    fg_arena_reset(a);
    large = fg_arena_alloc(a, (size_t)20 << 20);
    CHECK(large[((size_t)20 << 20) - 1] == 0);
    fg_arena_free(a);
    fg_arena_free(NULL);
}

static void vectors(int *failures)
{
    FgArena *a = fg_arena_new();
    FgIdVec v = {0};
    for (uint32_t i = 0; i < 1000; i++)
        fg_vec_push(a, &v, i * i);
    CHECK_EQ_U64(v.len, 1000);
    for (uint32_t i = 0; i < v.len; i++)
        *failures += v.data[i] != i * i;
    fg_arena_free(a);
}

static void maps(int *failures)
{
    FgArena *a = fg_arena_new();
    FgMap map;
    fg_map_init(&map, a);
    uint32_t value = 77;
    CHECK(!fg_map_get(&map, "x", &value));
    CHECK_EQ_U64(value, 77);
    for (uint32_t i = 0; i < 500; i++)
        CHECK(fg_map_add(&map, fg_arena_printf(a, "key %u", i), i));
    CHECK(!fg_map_add(&map, "key 3", 9));
    CHECK(fg_map_get(&map, "key 3", &value) && value == 3);
    fg_map_set(&map, "key 3", 9);
    CHECK(fg_map_get(&map, "key 3", &value) && value == 9);
    CHECK_EQ_U64(map.len, 500);
    for (uint32_t i = 4; i < 500; i++)
        CHECK(fg_map_get(&map, fg_arena_printf(a, "key %u", i), &value) && value == i);
    CHECK(!fg_map_get(&map, "key 500", NULL));
    /* Published vectors of FNV-1a, 64 bits. */
    CHECK_EQ_U64(fg_hash_bytes("", 0, 0), 0xcbf29ce484222325u);
    CHECK_EQ_U64(fg_hash_bytes("foobar", 6, 0), 0x85944171f73967e8u);
    fg_arena_free(a);
}

static void texts(int *failures)
{
    FgArena *a = fg_arena_new();
    FgBuf buf;
    fg_buf_init(&buf, a);
    CHECK_STR(fg_buf_text(&buf), "");
    for (int i = 0; i < 300; i++)
        fg_buf_printf(&buf, "%d,", i);
    CHECK_EQ_U64(buf.len, 10 * 2 + 90 * 3 + 200 * 4);
    CHECK(strcmp(buf.data + buf.len - 8, "298,299,") == 0);
    CHECK_STR(fg_quoted(a, "a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"");
    CHECK_STR(fg_bytes_text(a, 12), "12 B");
    CHECK_STR(fg_bytes_text(a, 15644418375), "14.57 GiB");
    CHECK_STR(fg_bytes_text(a, 126353408), "120.5 MiB");
    CHECK_STR(fg_bytes_text(a, ((uint64_t)1 << 20) - 1), "1.00 MiB");
    CHECK_STR(fg_count_text(a, 1235814400), "1,235,814,400");
    CHECK_STR(fg_count_text(a, 999), "999");
    FgIntern *intern = fg_intern_new(a);
    const char *first = fg_intern(intern, "name 7");
    for (int i = 0; i < 400; i++)
        fg_intern(intern, fg_arena_printf(a, "name %d", i));
    CHECK(fg_intern(intern, "name 7") == first);
    CHECK(fg_internn(intern, "name 77", 6) == first);
    CHECK(fg_intern(intern, "name") != first);
    fg_arena_free(a);
}

static void doubles(int *failures)
{
    FgArena *a = fg_arena_new();
    CHECK_STR(fg_double_text(a, 1), "1.0");
    CHECK_STR(fg_double_text(a, 0.1), "0.1");
    CHECK_STR(fg_double_text(a, 1e-6), "1e-06");
    CHECK_STR(fg_double_text(a, -0.0), "-0.0");
    CHECK_STR(fg_double_text(a, -HUGE_VAL), "-inf");
    CHECK_STR(fg_double_text(a, 1.0 / 3), "0.3333333333333333");
    const double values[] = {1e300, 5e-324, 0.02, 3.0000000000000004, 123456789.125, 1e22};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        CHECK(strtod(fg_double_text(a, values[i]), NULL) == values[i]);
    fg_arena_free(a);
}

static void sizes(int *failures)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1024", 1024},
                {"15360MiB", (uint64_t)15360 << 20},
                {"14.57GiB", 15644418375},
                {"2GB", 2000000000},
                {"1 KB", 1000},
                {"1 kib", 1024},
                {"7B", 7},
                {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {
        "",   "GB",    "-1",   "1.5",  "1 XB",          "1e3", "18446744073709551616",
        " 1", "1  GB", "0x10", "1.GB", "99999999999 TB"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(fg_parse_bytes(good[i].text, &bytes));
        CHECK_EQ_U64(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes = 5;
        CHECK(!fg_parse_bytes(bad[i], &bytes));
        CHECK_EQ_U64(bytes, 5);
    }
    int64_t n = 0;
    CHECK(fg_parse_integer("-9223372036854775808", &n) && n == INT64_MIN);
    CHECK(fg_parse_integer("+12", &n) && n == 12);
    const char *const no_integers[] = {"", "x", "1x", "1.0", "9223372036854775808"};
    for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++)
        CHECK(!fg_parse_integer(no_integers[i], &n));
    int64_t out;
    CHECK(!fg_mul_i64(INT64_MAX, 2, &out));
    CHECK(fg_add_i64(INT64_MAX, -1, &out) && out == INT64_MAX - 1);
    CHECK_EQ_U64(fg_round_up(257, 256), 512);
}

static void suggestions(int *failures)
{
    static const char *const ops[] = {"linear", "matmul", "rope", "rope_table", "mul", "mean"};
    CHECK_STR(fg_closest("lineer", ops, 6), "linear");
    CHECK_STR(fg_closest("maen", ops, 6), "mean");
    CHECK_STR(fg_closest("ropetable", ops, 6), "rope_table");
    CHECK(!fg_closest("convolution", ops, 6));
    CHECK(!fg_closest("", ops, 0));
}

static void diagnostics(int *failures)
{
    FgArena *a = fg_arena_new();
    FgDiags *diags = fg_diags_new(a);
    static const char text[] = "first\n\tx = \xc3\xa9 y\nlast";
    uint32_t file = fg_diags_source(diags, "f.json", text, sizeof text - 1);
    uint32_t dump = fg_diags_source(diags, "other.json", NULL, 0);
    fg_diag(diags, (FgLoc){file, 2, 9}, FG_D_UNKNOWN_OP, "no '%s'", "y");
    fg_diag_note(diags, (FgLoc){dump, 7, 3}, "seen here");
    fg_diag(diags, (FgLoc){file, 3, 5}, FG_D_UNUSED_NAME, "at the end");
    fg_diag(diags, (FgLoc){file, 9, 1}, FG_D_JSON_SYNTAX, "beyond");
    FgBuf out;
    fg_buf_init(&out, a);
    fg_diags_render(diags, &out);
    CHECK_STR(fg_buf_text(&out), "f.json:2:9: error: no 'y' [unknown-op]\n"
                                 "  \tx = \xc3\xa9 y\n"
                                 "  \t      ^\n"
                                 "other.json:7:3: note: seen here\n"
                                 "f.json:3:5: note: at the end [unused-name]\n"
                                 "  last\n"
                                 "      ^\n"
                                 "f.json:9:1: error: beyond [json-syntax]\n"
                                 "2 errors\n");
    CHECK_EQ_U64(fg_diags_errors(diags), 2);
    CHECK(fg_diags_has(diags, FG_D_UNUSED_NAME) && !fg_diags_has(diags, FG_D_IO));
    CHECK_STR(fg_diag_name(FG_D_UNKNOWN_OP), "UNKNOWN_OP");
    CHECK_STR(fg_diags_source_name(diags, dump), "other.json");
    CHECK_STR(fg_diags_source_name(diags, 0), "");
    fg_arena_free(a);
}

static void many_diagnostics(int *failures)
{
    FgArena *a = fg_arena_new();
    FgDiags *diags = fg_diags_new(a);
    for (int i = 1; i <= 23; i++) {
        fg_diag(diags, FG_NOWHERE, FG_D_IO, "message %d", i);
        fg_diag_note(diags, FG_NOWHERE, "note %d", i);
    }
    FgBuf out;
    fg_buf_init(&out, a);
    fg_diags_render(diags, &out);
    const char *text = fg_buf_text(&out);
    CHECK(strstr(text,
                 "error: message 20 [io]\nnote: note 20\n3 more errors not shown\n23 errors\n"));
    CHECK(!strstr(text, "message 21") && !strstr(text, "note 21"));
    /* A line of a hundred thousand bytes is shown around its caret only. */
    char *line = fg_arena_alloc(a, 100001);
    memset(line, 'x', 100000);
    line[50000] = '!';
    FgDiags *wide = fg_diags_new(a);
    uint32_t file = fg_diags_source(wide, "w", line, 100000);
    fg_diag(wide, (FgLoc){file, 1, 50001}, FG_D_IO, "here");
    fg_buf_init(&out, a);
    fg_diags_render(wide, &out);
    CHECK(out.len < 500);
    const char *shown = strchr(fg_buf_text(&out), '\n') + 1, *below = strchr(shown, '\n') + 1;
    CHECK(strchr(shown, '!') - shown == strchr(below, '^') - below);
    fg_arena_free(a);
}

static void files(int *failures)
{
    FgArena *a = fg_arena_new();
    const char *error = NULL;
    const char *dir = fg_temp_dir(a, &error);
    CHECK(dir != NULL);
    if (!dir)
        return;
    const char *path = fg_arena_printf(a, "%s/file", dir);
    char *text;
    size_t len;
    CHECK(!fg_file_read(a, path, &text, &len, &error));
    CHECK(strstr(error, path) && strstr(error, "No such file"));
    CHECK(!fg_file_read(a, dir, &text, &len, &error));
    CHECK(fg_file_write(a, path, "a\0b", 3, &error));
    CHECK(fg_file_write(a, path, "c\0de", 4, &error));
    CHECK(fg_file_read(a, path, &text, &len, &error) && len == 4 && !memcmp(text, "c\0de", 5));
    CHECK(!fg_file_write(a, fg_arena_printf(a, "%s/no/file", dir), "", 0, &error));
    CHECK(fg_file_write(a, "/dev/null", "x", 1, &error));
    const char *output;
    CHECK(fg_run(a, (const char *const[]){"sh", "-c", "echo out of luck >&2; exit 3", NULL},
                 &output) == 3);
    CHECK_STR(output, "out of luck\n");
    CHECK(fg_run(a, (const char *const[]){"sh", "-c", "kill -9 $$", NULL}, &output) == 128 + 9);
    /* Much output, and a process left behind that holds its end of the pipe. */
    time_t start = time(NULL);
    const char *leaves = "head -c 200000 /dev/zero | tr '\\0' x >&2; sleep 30 >&2 & exit 4";
    CHECK(fg_run(a, (const char *const[]){"sh", "-c", leaves, NULL}, &output) == 4);
    CHECK(strlen(output) == 200000 && time(NULL) - start < 20);
    CHECK(fg_run(a, (const char *const[]){"no-such-program-here", NULL}, &output) == -1);
    CHECK(strstr(output, "no-such-program-here"));
    fg_temp_dir_remove(a, dir);
    CHECK(access(dir, F_OK) != 0);
    fg_arena_free(a);
}

UNIT_MAIN({"arena", arena}, {"vectors", vectors}, {"maps", maps}, {"texts", texts},
          {"doubles", doubles}, {"sizes", sizes}, {"suggestions", suggestions},
          {"diagnostics", diagnostics}, {"many diagnostics", many_diagnostics}, {"files", files})
