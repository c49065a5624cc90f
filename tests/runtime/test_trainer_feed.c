/* Token files and fixed batches, dealt to ranks. */
#include "runtime/trainer/feed.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

enum { HEADER = 1024 };

typedef struct Corpus {
    char *folder, *path;
} Corpus;

/* Tokens 0, 1, 2, ...; `claimed` of them by the header. */
static Corpus corpus(int32_t magic, int32_t version, uint32_t n, int32_t claimed, size_t width)
{
    Corpus c = {.folder = scratch_new()};
    unsigned char *bytes = calloc(HEADER + n * width, 1);
    memcpy(bytes, &(int32_t[]){magic, version, claimed}, 12);
    for (uint32_t i = 0; i < n; i++)
        memcpy(bytes + HEADER + i * width, &i, width); /* little-endian */
    c.path = scratch_path(c.folder, "tokens.bin");
    scratch_write(c.path, bytes, HEADER + n * width);
    free(bytes);
    return c;
}

static void corpus_remove(Corpus *c)
{
    scratch_remove(c->folder);
    free(c->path);
    free(c->folder);
}

static void token_files(int *failures)
{
    FgTokens tokens;
    FgFail fail = {0};
    int32_t out[3];
    Corpus c = corpus(20240520, 1, 70, 70, 2);
    CHECK(fg_tokens_open(&tokens, c.path, &fail));
    CHECK_EQ_U64(tokens.n, 70);
    CHECK(fg_tokens_read(&tokens, 67, 3, out, &fail));
    CHECK(out[0] == 67 && out[2] == 69);
    fg_tokens_close(&tokens);
    corpus_remove(&c);
    c = corpus(20240801, 7, 9, 9, 4);
    CHECK(fg_tokens_open(&tokens, c.path, &fail));
    CHECK(fg_tokens_read(&tokens, 6, 3, out, &fail));
    CHECK(out[0] == 6 && out[2] == 8);
    fg_tokens_close(&tokens);
    corpus_remove(&c);
}

static void refuse(int *failures, Corpus c, const char *part)
{
    FgTokens tokens;
    FgFail fail = {0};
    CHECK(!fg_tokens_open(&tokens, c.path, &fail));
    if (!fail.text || !strstr(fail.text, part)) {
        printf("gives: %s\n  not: %s\n", fail.text ? fail.text : "(it opens)", part);
        ++*failures;
    }
    fg_fail_clear(&fail);
    corpus_remove(&c);
}

static void bad_token_files(int *failures)
{
    refuse(failures, corpus(20240520, 1, 70, 71, 2), "promises 71 tokens, the file holds 70");
    refuse(failures, corpus(20240520, 1, 70, 69, 2), "promises 69 tokens");
    refuse(failures, corpus(20240520, 1, 70, -1, 2), "promises -1 tokens");
    refuse(failures, corpus(20240520, 7, 70, 70, 2), "version 7");
    refuse(failures, corpus(20240801, 1, 70, 70, 4), "version 1");
    refuse(failures, corpus(20240522, 1, 70, 70, 2), "not a token file");
    Corpus c = corpus(20240520, 1, 0, 0, 2);
    scratch_write(c.path, "\0\0", 2);
    refuse(failures, c, "too short");
}

/* [batch, 4] tokens and labels. */
static const FgRtInput INPUTS[] = {
    {.name = "x", .role = 0, .dtype = FG_RT_I32, .elements = 8, .rank = 2},
    {.name = "y", .role = 1, .dtype = FG_RT_I32, .elements = 8, .rank = 2}};
static const int64_t DIMS[] = {2, 4};

static FgRtProgram program_of(uint32_t ranks, uint32_t accumulate)
{
    return (FgRtProgram){.ranks = ranks,
                         .batch = 2,
                         .seq = 4,
                         .accumulate = accumulate,
                         .inputs = INPUTS,
                         .n_inputs = 2,
                         .dims = DIMS,
                         .loss_is_token_mean = 1,
                         .ignore_index = -100};
}

static const int32_t *part(const FgFeed *feed, uint32_t micro, uint32_t rank, uint32_t input)
{
    size_t bytes;
    return fg_feed_input(feed, micro, rank, input, &bytes);
}

static void dealing(int *failures)
{
    FgRtProgram program = program_of(3, 2);
    Corpus c = corpus(20240520, 1, 100, 100, 2);
    FgOptions options = {.data = c.path, .global_batch = 5};
    FgFail fail = {0};
    FgFeed feed;
    CHECK(fg_feed_open(&feed, &program, &options, &fail));
    CHECK(fg_feed_next(&feed, &fail));
    CHECK_EQ_U64(feed.valid, 2 * 5 * 4);
    CHECK(part(&feed, 0, 0, 0)[0] == 0 && part(&feed, 0, 0, 1)[7] == 8);
    CHECK(part(&feed, 0, 1, 0)[0] == 8 && part(&feed, 0, 2, 0)[3] == 19);
    CHECK(part(&feed, 0, 2, 0)[4] == 0 && part(&feed, 0, 2, 1)[4] == -100);
    CHECK(part(&feed, 1, 0, 0)[0] == 20 && part(&feed, 1, 2, 1)[3] == 40);
    CHECK_EQ_U64(feed.position, 40);
    CHECK_EQ_U64(feed.rows_seen, 10);
    CHECK_EQ_U64(fg_feed_step_tokens(&feed), 40);
    CHECK(fg_feed_seed(&feed) == 1.0f / 40);
    CHECK(fg_feed_next(&feed, &fail)); /* 40..80 */
    CHECK(fg_feed_next(&feed, &fail)); /* 80 + 21 > 100: from the start */
    CHECK(part(&feed, 0, 0, 0)[0] == 0 && part(&feed, 1, 0, 0)[0] == 20);
    CHECK_EQ_U64(feed.position, 40);
    fg_feed_close(&feed);
    corpus_remove(&c);
}

static void the_last_token_counts(int *failures)
{
    FgRtProgram program = program_of(1, 1);
    FgFail fail = {0};
    FgFeed feed;
    Corpus c = corpus(20240520, 1, 17, 17, 2);
    FgOptions options = {.data = c.path, .global_batch = FG_NOT_GIVEN};
    CHECK(fg_feed_open(&feed, &program, &options, &fail));
    CHECK_EQ_U64(feed.rows, 2);
    CHECK(fg_feed_next(&feed, &fail));
    CHECK(fg_feed_next(&feed, &fail)); /* 8 + 9 = 17: still fits */
    CHECK(part(&feed, 0, 0, 0)[0] == 8 && part(&feed, 0, 0, 1)[7] == 16);
    CHECK(fg_feed_next(&feed, &fail));
    CHECK(part(&feed, 0, 0, 0)[0] == 0);
    fg_feed_close(&feed);
    corpus_remove(&c);
    c = corpus(20240520, 1, 8, 8, 2);
    options.data = c.path;
    CHECK(!fg_feed_open(&feed, &program, &options, &fail));
    CHECK(fail.text && strstr(fail.text, "8 tokens; one micro-step reads 9"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    corpus_remove(&c);
}

/* ---- fixed batches ---- */

static const void *give(void *cx, uint32_t index, FgFail *fail)
{
    (void)fail;
    return ((const void *const *)cx)[index];
}

static bool open_fixed(FgFeed *feed, const FgRtProgram *program, FgStDtype dtype, const void *data,
                       const int64_t *dims, const char *name, uint64_t rows, FgFail *fail)
{
    char *folder = scratch_new(), *path = scratch_path(folder, "in.safetensors");
    const void *sources[] = {data, data};
    FgTensorOut tensors[] = {{"x", dtype, 2, dims}, {name, dtype, 2, dims}};
    FgOptions options = {.inputs = path, .global_batch = rows};
    bool ok = fg_safetensors_write(path, tensors, 2, give, (void *)sources, fail) &&
              fg_feed_open(feed, program, &options, fail);
    scratch_remove(folder);
    free(path);
    free(folder);
    return ok;
}

static void fixed_batch(int *failures)
{
    FgRtProgram program = program_of(2, 3);
    FgFail fail = {0};
    FgFeed feed;
    const int64_t dims[] = {3, 4}, short_dims[] = {4, 3}, many[] = {5, 4};
    int64_t wide[20] = {-100, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -100};
    float reals[12] = {0};
    CHECK(open_fixed(&feed, &program, FG_ST_I64, wide, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fg_feed_next(&feed, &fail));
    CHECK_EQ_U64(feed.valid, 3 * 10);
    CHECK(part(&feed, 2, 1, 0)[0] == 8 && part(&feed, 2, 1, 0)[4] == 0);
    CHECK(part(&feed, 0, 0, 1)[0] == -100 && part(&feed, 1, 1, 1)[7] == -100);
    fg_feed_close(&feed);
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, wide, dims, "z", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "no tensor 'y'"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, wide, short_dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "'x' is I64 [4, 3]; the input is [2, 4]"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, wide, many, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "5 rows; a step takes at most 4: "));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, wide, dims, "y", 2, &fail));
    CHECK(fail.text && strstr(fail.text, "3 rows, not 2"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    CHECK(!open_fixed(&feed, &program, FG_ST_F32, reals, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "'x' is F32"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
    wide[5] = (int64_t)1 << 40;
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, wide, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "'x': element 5 is 1099511627776"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
}

/* Reals of any float dtype, into inputs of each. */
static void real_inputs(int *failures)
{
    static const FgRtDtype DTYPES[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16, FG_RT_F64};
    FgRtProgram program = program_of(1, 1);
    FgRtInput input = {.name = "x", .role = 2, .elements = 8, .rank = 2};
    FgFail fail = {0};
    FgFeed feed;
    const int64_t dims[] = {2, 4};
    float reals[8] = {0.5f, -1.25f, 3, 4, 5, 6, 7, 65504};
    double wide[8] = {0.1, -1.25, 3, 4, 5, 6, 7, 1e300};
    program.inputs = &input;
    program.n_inputs = 1;
    program.loss_is_token_mean = 0;
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++) {
        float f32[2];
        double f64[2];
        input.dtype = DTYPES[i];
        CHECK(open_fixed(&feed, &program, FG_ST_F32, reals, dims, "y", FG_NOT_GIVEN, &fail));
        const void *data = part(&feed, 0, 0, 0);
        const uint16_t *half = data;
        memcpy(f32, data, sizeof f32);
        memcpy(f64, data, sizeof f64);
        CHECK(input.dtype == FG_RT_F64    ? f64[1] == -1.25
              : input.dtype == FG_RT_F32  ? f32[1] == -1.25f
              : input.dtype == FG_RT_BF16 ? half[1] == 0xbfa0
                                          : half[1] == 0xbd00 && half[7] == 0x7bff);
        fg_feed_close(&feed);
        bool took = open_fixed(&feed, &program, FG_ST_F64, wide, dims, "y", FG_NOT_GIVEN, &fail);
        CHECK(took == (input.dtype == FG_RT_F64));
        CHECK(!took || memcmp(part(&feed, 0, 0, 0), wide, sizeof wide) == 0);
        fg_fail_clear(&fail);
        fg_feed_close(&feed);
    }
    input.dtype = FG_RT_F16;
    reals[7] = 65536;
    CHECK(!open_fixed(&feed, &program, FG_ST_F32, reals, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "'x': element 7 is 65536; this input is fp16"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
}

static void seeds(int *failures)
{
    FgRtProgram program = program_of(2, 3);
    FgFail fail = {0};
    FgFeed feed;
    const int64_t dims[] = {4, 4};
    int64_t none[16];
    for (int i = 0; i < 16; i++)
        none[i] = -100;
    CHECK(open_fixed(&feed, &program, FG_ST_I64, none, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fg_feed_next(&feed, &fail));
    CHECK(feed.valid == 0 && fg_feed_seed(&feed) == 0);
    fg_feed_close(&feed);
    program.loss_is_token_mean = 0;
    CHECK(open_fixed(&feed, &program, FG_ST_I64, none, dims, "y", FG_NOT_GIVEN, &fail));
    CHECK(fg_feed_seed(&feed) == 1.0f / 6);
    fg_feed_close(&feed);
    const int64_t three[] = {3, 4};
    CHECK(!open_fixed(&feed, &program, FG_ST_I64, none, three, "y", FG_NOT_GIVEN, &fail));
    CHECK(fail.text && strstr(fail.text, "3 rows of 4"));
    fg_fail_clear(&fail);
    fg_feed_close(&feed);
}

UNIT_MAIN({"token files", token_files}, {"bad token files", bad_token_files}, {"dealing", dealing},
          {"the last token counts", the_last_token_counts}, {"fixed batch", fixed_batch},
          {"real inputs", real_inputs}, {"seeds", seeds})
