/* A sharded vocabulary among one, two and three ranks: a lookup, and a head with its loss and
 * gradients, in two pieces of unequal size, against plain formulas over the whole table. Owned rows
 * beyond the vocabulary do not exist; a rank may own none that does. */
#include <unistd.h>

#include "tests/oracle/formulas.h"
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

enum { TOKENS = 7, PIECE = 4, HIDDEN = 5, VOCAB = 11, MOST_RANKS = 3, MOST_COLS = 16 };
enum { ALL = TOKENS * MOST_RANKS, IGNORE = -100, KIB = 1024 };

/* Where things lie in a rank's memory. */
enum {
    IDS = 0,
    LABELS = 1 * KIB,
    X = 2 * KIB,
    W = 3 * KIB,
    B = 4 * KIB,
    SEED = 5 * KIB,
    ALL_IDS = 6 * KIB,
    ALL_LABELS = 7 * KIB,
    ROWS = 8 * KIB,
    Y = 9 * KIB,
    XS = 10 * KIB,
    LOGITS = 11 * KIB,
    STATS = 13 * KIB,
    ALL_STATS = 14 * KIB,
    LSE = 16 * KIB,
    LOSS = 17 * KIB,
    PART = 18 * KIB,
    DX = 19 * KIB,
    DW = 20 * KIB,
    DB = 21 * KIB,
    WS = 24 * KIB,
    WS_BYTES = 64 * KIB,
    BYTES = WS + WS_BYTES
};

static uint64_t n_ranks(FgRtCx *cx)
{
    return fg_rt_program(cx)->ranks;
}

static uint64_t n_cols(FgRtCx *cx)
{
    return fg_rt_program(cx)->batch; /* a number that bodies see */
}

static void lookup_piece(FgRtCx *cx, uint64_t first, uint64_t n)
{
    uint64_t ranks = n_ranks(cx), cols = n_cols(cx);
    fg_rt_lookup_rows(cx, 1, FG_COMPUTE, ALL_IDS, W, ROWS, TOKENS * ranks, first, n * ranks, HIDDEN,
                      VOCAB, 0, cols * HIDDEN, FG_RT_F32);
    fg_rt_join(cx);
    fg_rt_return_rows(cx, 2, FG_REDUCE, first ? Y : FG_RT_NONE, ROWS, Y, TOKENS * HIDDEN,
                      n * ranks * HIDDEN, first * HIDDEN, FG_RT_F32, FG_RT_F32);
    fg_rt_join(cx);
}

static void head_piece(FgRtCx *cx, uint64_t first, uint64_t n)
{
    const uint64_t dt = FG_RT_F32, ignore = (uint64_t)IGNORE;
    uint64_t ranks = n_ranks(cx), cols = n_cols(cx), rows = n * ranks, all = TOKENS * ranks;
    fg_rt_collect(cx, 3, FG_REDUCE, X, XS, TOKENS * HIDDEN, rows * HIDDEN, first * HIDDEN, dt);
    fg_rt_join(cx);
    fg_rt_linear(cx, 4, FG_COMPUTE, XS, W, B, FG_RT_NONE, LOGITS, rows, cols, HIDDEN, 0, dt, WS,
                 WS_BYTES);
    fg_rt_vocab_stats(cx, 5, FG_COMPUTE, LOGITS, ALL_LABELS, STATS, all, first, rows, cols, VOCAB,
                      ignore, dt);
    fg_rt_join(cx);
    fg_rt_collect(cx, 6, FG_REDUCE, STATS, ALL_STATS, rows * 3, rows * ranks * 3, 0, FG_RT_F32);
    fg_rt_join(cx);
    fg_rt_vocab_loss(cx, 7, FG_COMPUTE, ALL_STATS, ALL_LABELS, SEED, first ? LOSS : FG_RT_NONE,
                     first ? LOSS + 256 : LOSS, LSE, all, first, rows, VOCAB, ignore);
    fg_rt_vocab_dlogits(cx, 8, FG_COMPUTE, LOGITS, ALL_LABELS, LSE, SEED, LOGITS, all, first, rows,
                        cols, VOCAB, ignore, dt);
    fg_rt_vocab_dx(cx, 9, FG_COMPUTE, LOGITS, W, PART, rows, cols, HIDDEN, dt, WS, WS_BYTES);
    fg_rt_join(cx);
    fg_rt_return_rows(cx, 10, FG_REDUCE, first ? DX : FG_RT_NONE, PART, DX, TOKENS * HIDDEN,
                      rows * HIDDEN, first * HIDDEN, FG_RT_F32, dt);
    fg_rt_vocab_dw(cx, 11, FG_COMPUTE, XS, LOGITS, DW, 0, rows, cols, HIDDEN, dt, FG_RT_F32,
                   first > 0, WS, WS_BYTES);
    fg_rt_vocab_db(cx, 12, FG_COMPUTE, LOGITS, DB, 0, rows, cols, dt, FG_RT_F32, first > 0);
    fg_rt_join(cx);
}

static void body(FgRtCx *cx)
{
    uint64_t ranks = n_ranks(cx);
    fg_rt_collect(cx, 0, FG_REDUCE, IDS, ALL_IDS, TOKENS, TOKENS * ranks, 0, FG_RT_I32);
    fg_rt_collect(cx, 0, FG_REDUCE, LABELS, ALL_LABELS, TOKENS, TOKENS * ranks, 0, FG_RT_I32);
    fg_rt_join(cx);
    lookup_piece(cx, 0, PIECE);
    lookup_piece(cx, PIECE, TOKENS - PIECE);
    head_piece(cx, 0, PIECE);
    head_piece(cx, PIECE, TOKENS - PIECE);
}

/* The whole problem in double. */
typedef struct Whole {
    double ids[ALL], labels[ALL], x[ALL * HIDDEN], w[VOCAB * HIDDEN], b[VOCAB], seed;
    double y[ALL * HIDDEN], loss, dx[ALL * HIDDEN], dw[VOCAB * HIDDEN], db[VOCAB];
} Whole;

static void *memory(Rig *rig, uint32_t rank, uint64_t at)
{
    return fg_rt_memory(fg_rt_group_rank(rig->group, rank), at);
}

static void put_ints(Rig *rig, uint32_t rank, uint64_t at, const double *from)
{
    for (int i = 0; i < TOKENS; i++)
        ((int32_t *)memory(rig, rank, at))[i] = (int32_t)from[i];
}

static double some(Rig *rig)
{
    return rig_round(FG_RT_F32, rig_random(rig));
}

static void fill(Rig *rig, uint32_t ranks, uint64_t cols, Whole *it)
{
    for (uint32_t i = 0; i < ranks * TOKENS; i++) {
        it->ids[i] = (double)((5 * i + 2) % VOCAB);
        it->labels[i] = i % 4 == 1 ? IGNORE : (double)((7 * i + 10) % VOCAB);
        for (int k = 0; k < HIDDEN; k++)
            it->x[i * HIDDEN + (uint32_t)k] = some(rig);
    }
    for (int i = 0; i < VOCAB; i++) {
        it->b[i] = some(rig);
        for (int k = 0; k < HIDDEN; k++)
            it->w[i * HIDDEN + k] = some(rig);
    }
    it->seed = 0.125;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        put_ints(rig, rank, IDS, it->ids + rank * TOKENS);
        put_ints(rig, rank, LABELS, it->labels + rank * TOKENS);
        *(float *)memory(rig, rank, SEED) = (float)it->seed;
        for (uint32_t i = 0; i < TOKENS * HIDDEN; i++)
            ((float *)memory(rig, rank, X))[i] = (float)it->x[rank * TOKENS * HIDDEN + i];
        for (uint64_t i = 0; i < cols * HIDDEN; i++) {
            uint64_t at = rank * cols * HIDDEN + i; /* rows that do not exist hold anything */
            ((float *)memory(rig, rank, W))[i] = at < VOCAB * HIDDEN ? (float)it->w[at] : 1e3f;
        }
        for (uint64_t i = 0; i < cols; i++)
            ((float *)memory(rig, rank, B))[i] =
                rank * cols + i < VOCAB ? (float)it->b[rank * cols + i] : 1e3f;
    }
}

static void solve(Whole *it, int64_t tokens)
{
    double logits[ALL * VOCAB], dlogits[ALL * VOCAB], lse[ALL];
    ref_embedding(it->ids, it->w, it->y, tokens, HIDDEN);
    ref_linear(it->x, it->w, it->b, logits, tokens, VOCAB, HIDDEN, false);
    ref_cross_entropy(logits, it->labels, it->seed, &it->loss, lse, tokens, VOCAB, IGNORE);
    ref_cross_entropy_back(logits, it->labels, it->seed, 1, dlogits, tokens, VOCAB, IGNORE);
    ref_linear_dx(dlogits, it->w, it->dx, tokens, VOCAB, HIDDEN, false);
    ref_linear_dw(it->x, dlogits, it->dw, tokens, VOCAB, HIDDEN, false);
    ref_column_sum(dlogits, it->db, tokens, VOCAB);
}

static void compare(Rig *rig, uint32_t rank, uint64_t at, const double *want, uint64_t n,
                    double tolerance, int *failures)
{
    const float *got = memory(rig, rank, at);
    for (uint64_t i = 0; i < n; i++)
        CHECK_NEAR((double)got[i], want[i], tolerance);
}

static void check_slices(Rig *rig, uint32_t rank, uint64_t cols, const Whole *it, int *failures)
{
    double dw[MOST_COLS * HIDDEN] = {0}, db[MOST_COLS] = {0}; /* 0 where no row exists */
    for (uint64_t row = rank * cols; row < (rank + 1) * cols && row < VOCAB; row++) {
        memcpy(dw + (row - rank * cols) * HIDDEN, it->dw + row * HIDDEN, HIDDEN * sizeof *dw);
        db[row - rank * cols] = it->db[row];
    }
    compare(rig, rank, DW, dw, cols * HIDDEN, 1e-6, failures);
    compare(rig, rank, DB, db, cols, 1e-6, failures);
}

static void head_and_lookup(int *failures)
{
    static const struct {
        uint32_t ranks, cols;
    } cases[] = {{1, 11}, {1, 16}, {2, 6}, {2, 8}, {3, 4}, {3, 8}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        alarm(60); /* a hang is a failure */
        uint32_t ranks = cases[c].ranks, cols = cases[c].cols;
        FgRtProgram program = {
            .abi = FG_RT_ABI, .ranks = ranks, .batch = cols, .state_bytes = BYTES};
        Rig rig = rig_open_program(&program, (FgRtOptions){.checked = 1});
        Whole it = {0};
        fill(&rig, ranks, cols, &it);
        solve(&it, ranks * TOKENS);
        rig_run(&rig, body);
        rig_check_ok(&rig, "a sharded vocabulary", failures);
        double loss = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const uint64_t own = TOKENS * HIDDEN;
            compare(&rig, rank, Y, it.y + rank * own, own, 0, failures); /* one term: exact */
            compare(&rig, rank, DX, it.dx + rank * own, own, 1e-6, failures);
            check_slices(&rig, rank, cols, &it, failures);
            loss += (double)*(float *)memory(&rig, rank, LOSS + 256);
        }
        CHECK_NEAR(loss, it.loss, 1e-5);
        rig_close(&rig);
    }
}

/* ---- a lookup in the slices of a bucket ---- */

enum { TABLE = 3, SLICE = 21 }; /* the table begins in the first slice, all slices inside rows */

static void lookup_in_bucket(FgRtCx *cx)
{
    uint64_t ranks = n_ranks(cx);
    fg_rt_collect(cx, 0, FG_REDUCE, IDS, ALL_IDS, TOKENS, TOKENS * ranks, 0, FG_RT_I32);
    fg_rt_join(cx);
    fg_rt_lookup_rows(cx, 1, FG_COMPUTE, ALL_IDS, W, ROWS, TOKENS * ranks, 0, TOKENS * ranks,
                      HIDDEN, VOCAB, TABLE, SLICE, FG_RT_F32);
    fg_rt_join(cx);
    memcpy(fg_rt_memory(cx, XS), fg_rt_memory(cx, ROWS), ALL * HIDDEN * sizeof(float));
    fg_rt_return_rows(cx, 2, FG_REDUCE, FG_RT_NONE, ROWS, Y, TOKENS * HIDDEN,
                      TOKENS * ranks * HIDDEN, 0, FG_RT_F32, FG_RT_F32);
    fg_rt_join(cx);
}

/* What a rank does not own is -0.0, and the sum has the bits of the table, its own -0.0 too. */
static void lookup_is_exact(int *failures)
{
    const uint32_t ranks = 3;
    FgRtProgram program = {.abi = FG_RT_ABI, .ranks = ranks, .state_bytes = BYTES};
    Rig rig = rig_open_program(&program, (FgRtOptions){0});
    float table[VOCAB * HIDDEN];
    for (uint32_t i = 0; i < VOCAB * HIDDEN; i++) {
        table[i] = i % 4 == 1 ? -0.0f : i % 4 == 2 ? 0.0f : (float)some(&rig);
        uint32_t at = TABLE + i;
        ((float *)memory(&rig, at / SLICE, W))[at % SLICE] = table[i];
    }
    for (uint32_t i = 0; i < ranks * TOKENS; i++)
        ((int32_t *)memory(&rig, i / TOKENS, IDS))[i % TOKENS] = (int32_t)((5 * i + 2) % VOCAB);
    rig_run(&rig, lookup_in_bucket);
    rig_check_ok(&rig, "a lookup in slices", failures);
    for (uint32_t i = 0; i < ranks * TOKENS * HIDDEN; i++) {
        uint32_t row = (5 * (i / HIDDEN) + 2) % VOCAB, at = row * HIDDEN + i % HIDDEN;
        const float *y = memory(&rig, i / (TOKENS * HIDDEN), Y);
        CHECK(memcmp(&y[i % (TOKENS * HIDDEN)], &table[at], sizeof(float)) == 0);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const float *part = memory(&rig, rank, XS), minus_zero = -0.0f;
            bool own = (TABLE + at) / SLICE == rank;
            CHECK(memcmp(&part[i], own ? &table[at] : &minus_zero, sizeof(float)) == 0);
        }
    }
    rig_close(&rig);
}

/* ---- what is refused ---- */

static void returning_elsewhere(FgRtCx *cx)
{
    fg_rt_return_rows(cx, 0, FG_REDUCE, DX, PART, Y, TOKENS * HIDDEN, TOKENS * HIDDEN, 0, FG_RT_F32,
                      FG_RT_F32);
}

static void bad_words_are_errors(int *failures)
{
    static const struct {
        uint64_t at;
        const char *text;
    } cases[] = {{IDS, "token 2 is 11; the vocabulary has 11 rows"},
                 {LABELS, "label 2 is 11; there are 11 classes"}};
    for (size_t c = 0; c < 2; c++) {
        FgRtProgram program = {.abi = FG_RT_ABI, .ranks = 1, .batch = 11, .state_bytes = BYTES};
        Rig rig = rig_open_program(&program, (FgRtOptions){0});
        Whole it = {0};
        fill(&rig, 1, 11, &it);
        ((int32_t *)memory(&rig, 0, cases[c].at))[2] = VOCAB;
        rig_run(&rig, body);
        CHECK(!fg_rt_status(rig.cx).ok && strstr(fg_rt_status(rig.cx).text, cases[c].text));
        rig_close(&rig);
    }
    FgRtProgram program = {.abi = FG_RT_ABI, .ranks = 1, .batch = 11, .state_bytes = BYTES};
    Rig rig = rig_open_program(&program, (FgRtOptions){0});
    rig_run(&rig, returning_elsewhere);
    CHECK(strstr(fg_rt_status(rig.cx).text, "where the earlier ones are") != NULL);
    rig_close(&rig);
}

UNIT_MAIN({"head_and_lookup", head_and_lookup}, {"lookup_is_exact", lookup_is_exact},
          {"bad_words_are_errors", bad_words_are_errors})
