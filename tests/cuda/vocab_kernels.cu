/* The calls that work on a vocabulary, whole or sharded, against the host's: loss, lookups, owned
 * rows. */
#include "tests/cuda/kernel_cases.h"

/* ---- loss and lookup ---- */

static uint64_t labels(Rig &r, uint64_t rows, uint64_t cols)
{
    uint64_t at = r.ids(rows, cols);
    for (uint64_t i = 1; i < rows; i += 3)
        r.set(at, FG_RT_I32, i, -100);
    return at;
}

void test_loss(Rig &r)
{
    const uint64_t ignore = (uint64_t)-100;
    for (uint64_t dt : FLOATS)
        for (uint64_t rows : {1, 6, 1500})
            for (uint64_t cols : {3, 257, 4096, 20480, 50257}) {
                if (rows * cols > 4000000)
                    continue;
                uint64_t n = rows * cols, skew = cols == 257; /* out of line once */
                r.begin();
                uint64_t x = r.normal(dt, n, 2, skew), to = labels(r, rows, cols);
                for (uint64_t i = 0; i < cols / 2; i++) /* all that some threads see */
                    r.set(x, dt, i, r.get(to, FG_RT_I32, 0) == (double)i ? 0 : -INFINITY);
                uint64_t seed = r.positive(FG_RT_F32, 1);
                uint64_t loss = r.result(FG_RT_F32, 1), lse = r.result(FG_RT_F32, rows);
                CHECK(r, label("cross_entropy", dt, {rows, cols}), cross_entropy, x, to, seed, loss,
                      lse, rows, cols, ignore, dt);
                r.begin();
                x = r.normal(dt, n, 2, skew), to = labels(r, rows, cols);
                seed = r.positive(FG_RT_F32, 1);
                lse = r.room(FG_RT_F32, rows);
                for (uint64_t i = 0; i < rows; i++)
                    r.set(lse, FG_RT_F32, i, 2 + log((double)cols));
                uint64_t dloss = r.positive(FG_RT_F32, 1), dx = r.result(dt, n);
                CHECK(r, label("cross_entropy_back", dt, {rows, cols}), cross_entropy_back, x, to,
                      lse, seed, dloss, dx, rows, cols, ignore, dt);
                r.begin();
                x = r.normal(dt, n, 2), to = labels(r, rows, cols);
                seed = r.positive(FG_RT_F32, 1);
                lse = r.room(FG_RT_F32, rows);
                for (uint64_t i = 0; i < rows; i++)
                    r.set(lse, FG_RT_F32, i, 2 + log((double)cols));
                r.changes(x, dt, n);
                CHECK(r, label("cross_entropy_back in place", dt, {rows, cols}), cross_entropy_back,
                      x, to, lse, seed, NONE, x, rows, cols, ignore, dt);
            }
    r.begin();
    uint64_t dt = FG_RT_F32, x = r.normal(dt, 12), to = r.ints({0, 4, 1});
    uint64_t seed = r.positive(dt, 1), loss = r.room(dt, 1), lse = r.room(dt, 3);
    r.check_error("cross_entropy with a bad label", fg_cuda_cross_entropy, x, to, seed, loss, lse,
                  (uint64_t)3, (uint64_t)4, ignore, dt);
    r.check_error("cross_entropy_back with a bad label", fg_cuda_cross_entropy_back, x, to, lse,
                  seed, NONE, x, (uint64_t)3, (uint64_t)4, ignore, dt);
}

void test_lookup(Rig &r)
{
    for (uint64_t dt : FLOATS)
        for (uint64_t tokens : {1, 77, 2500})
            for (uint64_t hidden : {1, 7, 64, 258}) {
                const uint64_t vocab = 301;
                r.begin();
                uint64_t id = r.ids(tokens, vocab), w = r.normal(dt, vocab * hidden);
                uint64_t y = r.result(dt, tokens * hidden, SAME);
                CHECK(r, label("embedding", dt, {tokens, hidden}), embedding, id, w, y, tokens,
                      hidden, vocab, dt);
                for (uint64_t wire : {dt, (uint64_t)FG_RT_F32})
                    for (uint64_t accumulate : {0, 1})
                        for (uint64_t padding : {NONE, (uint64_t)0}) {
                            r.begin();
                            id = r.ids(tokens, vocab);
                            uint64_t d = r.normal(dt, tokens * hidden);
                            uint64_t dw = r.normal(wire, vocab * hidden);
                            r.changes(dw, wire, vocab * hidden, SAME);
                            CHECK(r, label("embedding_dw", dt, {tokens, hidden, wire, accumulate}),
                                  embedding_dw, id, d, dw, tokens, hidden, vocab, padding, dt, wire,
                                  accumulate, r.ws, r.ws_bytes);
                        }
            }
    r.begin();
    uint64_t dt = FG_RT_F32, id = r.ints({1, 7, 2}), w = r.normal(dt, 20), y = r.room(dt, 12);
    r.check_error("embedding with a bad token", fg_cuda_embedding, id, w, y, (uint64_t)3,
                  (uint64_t)4, (uint64_t)5, dt);
    r.check_error("embedding_dw with a bad token", fg_cuda_embedding_dw, id, y, w, (uint64_t)3,
                  (uint64_t)4, (uint64_t)5, NONE, dt, dt, (uint64_t)0, r.ws, r.ws_bytes);
    r.check_raises("embedding_dw without room", fg_cuda_embedding_dw, id, y, w, (uint64_t)3,
                   (uint64_t)4, (uint64_t)5, NONE, dt, dt, (uint64_t)0, r.ws, (uint64_t)8);
}

/* The third rank's slice: it begins and ends inside rows. */
void test_lookup_rows(Rig &r)
{
    FgRtProgram program = {};
    program.ranks = 4;
    r.adopt(program, 2);
    for (uint64_t dt : FLOATS)
        for (uint64_t shard_dt : {dt, (uint64_t)FG_RT_F32})
            for (uint64_t tokens : {1, 77, 2500})
                for (uint64_t hidden : {1, 7, 64, 264})
                    for (uint64_t accumulate : {0, 1})
                        for (uint64_t padding : {NONE, (uint64_t)160}) {
                            const uint64_t vocab = 301, first = 128;
                            uint64_t own = (first + vocab * hidden + 255) / 256 * 64;
                            r.begin();
                            uint64_t id = r.ids(tokens, vocab), d = r.normal(dt, tokens * hidden);
                            uint64_t shard = r.normal(shard_dt, own);
                            r.changes(shard, shard_dt, own, SAME);
                            CHECK(r, label("lookup_dw", dt, {tokens, hidden, shard_dt, accumulate}),
                                  lookup_dw, id, d, shard, (uint64_t)0, tokens, hidden, vocab,
                                  first, own, padding, dt, shard_dt, accumulate, r.ws, r.ws_bytes);
                        }
}

void test_row_set(Rig &r)
{
    for (uint64_t tokens : {1, 77, 2500})
        for (uint64_t vocab : {5, 301}) {
            uint64_t words = (vocab + 31) / 32;
            r.begin();
            uint64_t id = r.ids(tokens, vocab), set = r.result(FG_RT_I32, words, SAME);
            CHECK(r, label("row_set", FG_RT_I32, {tokens, vocab}), row_set, id, set, tokens, vocab,
                  words);
        }
}

/* ---- a sharded vocabulary ---- */

/* Pieces of three ranks' tokens on a rank with all of its columns, and on one that lacks some or
 * all. */
void test_vocab(Rig &r)
{
    const uint64_t ignore = (uint64_t)-100, ranks = 3, stride = 50, first = 7, f32 = FG_RT_F32;
    for (uint32_t rank : {0u, 1u, 2u})
        for (uint64_t dt : FLOATS)
            for (uint64_t each : {1, 40})
                for (uint64_t cols : {8, 264, 12544}) {
                    FgRtProgram program = {};
                    program.ranks = (uint32_t)ranks;
                    r.adopt(program, rank);
                    uint64_t vocab = cols + cols / 2 + 1, rows = ranks * each, n = rows * cols;
                    r.begin();
                    uint64_t x = r.normal(dt, n, 2), to = labels(r, ranks * stride, vocab);
                    uint64_t stats = r.result(f32, rows * 3);
                    CHECK(r, label("vocab_stats", dt, {rank, each, cols}), vocab_stats, x, to,
                          stats, ranks * stride, first, rows, cols, vocab, ignore, dt);
                    for (uint64_t in_place : {0, 1}) {
                        r.begin();
                        x = r.normal(dt, n, 2), to = labels(r, ranks * stride, vocab);
                        uint64_t seed = r.positive(f32, 1), lse = r.room(f32, rows);
                        for (uint64_t i = 0; i < rows; i++)
                            r.set(lse, f32, i, 2 + log((double)vocab));
                        uint64_t dx = in_place ? x : r.room(dt, n);
                        r.changes(dx, dt, n);
                        CHECK(r, label("vocab_dlogits", dt, {rank, each, cols, in_place}),
                              vocab_dlogits, x, to, lse, seed, dx, ranks * stride, first, rows,
                              cols, vocab, ignore, dt);
                    }
                    if (cols > 264)
                        continue;
                    for (uint64_t hidden : {1, 7, 64}) {
                        r.begin();
                        uint64_t id = r.ids(ranks * stride, vocab);
                        uint64_t shard = r.normal(dt, cols * hidden);
                        uint64_t y = r.result(dt, rows * hidden, SAME);
                        CHECK(r, label("lookup_rows", dt, {rank, each, cols, hidden}), lookup_rows,
                              id, shard, y, ranks * stride, first, rows, hidden, vocab, (uint64_t)0,
                              cols * hidden, dt);
                        uint64_t own = (cols * hidden * 3 / 4 + 63) / 64 * 64;
                        r.begin(); /* slices that begin and end inside rows */
                        id = r.ids(ranks * stride, vocab);
                        shard = r.normal(dt, own);
                        y = r.result(dt, rows * hidden, SAME);
                        CHECK(r, label("lookup_rows of a bucket", dt, {rank, each, cols, hidden}),
                              lookup_rows, id, shard, y, ranks * stride, first, rows, hidden, vocab,
                              (uint64_t)64, own, dt);
                        r.begin();
                        uint64_t d = r.normal(dt, n), w = r.normal(dt, cols * hidden);
                        uint64_t part = r.result(f32, rows * hidden);
                        r.scale = sqrt((double)cols);
                        CHECK(r, label("vocab_dx", dt, {each, cols, hidden}), vocab_dx, d, w, part,
                              rows, cols, hidden, dt, r.ws, r.ws_bytes);
                    }
                    for (uint64_t accumulate : {0, 1}) {
                        const uint64_t hidden = 24;
                        r.begin();
                        uint64_t h = r.normal(dt, rows * hidden), d = r.normal(dt, n);
                        uint64_t dw = r.normal(f32, cols * hidden);
                        r.changes(dw, f32, cols * hidden);
                        r.scale = sqrt((double)rows);
                        CHECK(r, label("vocab_dw", dt, {each, cols, accumulate}), vocab_dw, h, d,
                              dw, (uint64_t)0, rows, cols, hidden, dt, f32, accumulate, r.ws,
                              r.ws_bytes);
                        r.begin();
                        d = r.normal(dt, n);
                        uint64_t db = r.normal(f32, cols);
                        r.changes(db, f32, cols);
                        r.scale = sqrt((double)rows);
                        CHECK(r, label("vocab_db", dt, {each, cols, accumulate}), vocab_db, d, db,
                              (uint64_t)0, rows, cols, dt, f32, accumulate);
                    }
                }
}

/* Statistics of three ranks, one of which owns nothing. */
void test_vocab_loss(Rig &r)
{
    const uint64_t ignore = (uint64_t)-100, ranks = 3, f32 = FG_RT_F32, vocab = 50257;
    FgRtProgram program = {};
    program.ranks = (uint32_t)ranks;
    r.adopt(program, 1);
    for (uint64_t each : {1, 33, 1500})
        for (uint64_t first : {0, 5})
            for (int chained = 0; chained < 2; chained++) {
                uint64_t rows = ranks * each, stride = each + 9;
                r.begin();
                uint64_t stats = r.normal(f32, ranks * rows * 3, 3);
                for (uint64_t i = 0; i < ranks * rows; i++) {
                    bool owns = i < 2 * rows;
                    r.set(stats, f32, 3 * i + 1, owns ? 1 + (double)(i % 17) : 0);
                    if (!owns) {
                        r.set(stats, f32, 3 * i, -INFINITY);
                        r.set(stats, f32, 3 * i + 2, 0);
                    }
                }
                uint64_t to = labels(r, ranks * stride, vocab), seed = r.positive(f32, 1);
                uint64_t before = chained ? r.normal(f32, 1) : NONE;
                uint64_t loss = r.result(f32, 1), lse = r.result(f32, rows);
                CHECK(r, label("vocab_loss", f32, {each, first, (uint64_t)chained}), vocab_loss,
                      stats, to, seed, before, loss, lse, ranks * stride, first, rows, vocab,
                      ignore);
            }
    program.ranks = 1;
    r.adopt(program, 0);
    r.begin();
    uint64_t x = r.normal(f32, 12), to = r.ints({0, 4, 1}), id = r.ints({1, 7, 2});
    uint64_t stats = r.room(f32, 9), y = r.room(f32, 12);
    r.check_error("vocab_stats with a bad label", fg_cuda_vocab_stats, x, to, stats, (uint64_t)3,
                  (uint64_t)0, (uint64_t)3, (uint64_t)4, (uint64_t)4, ignore, f32);
    r.check_error("lookup_rows with a bad token", fg_cuda_lookup_rows, id, x, y, (uint64_t)3,
                  (uint64_t)0, (uint64_t)3, (uint64_t)4, (uint64_t)3, (uint64_t)0, (uint64_t)12,
                  f32);
}
