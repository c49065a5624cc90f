/* What a probe makes of measured times, by hand-made times; and that the machine reader takes the
 * file that it writes. */
#include "base/str.h"
#include "frontend/machine.h"
#include "runtime/probe/figures.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

/* Items of 1 s from 0.5 on beside items of 2 s from 1 on: both run from 1 to 4.5. */
static void shared_time(int *failures)
{
    const double fast[] = {0.5, 1.5, 2.5, 3.5, 4.5}, slow[] = {1, 3, 5, 7};
    FgProbeTrack tracks[] = {{fast, 5}, {slow, 4}};
    double from, to;
    CHECK(fg_probe_shared(tracks, 2, &from, &to));
    CHECK_NEAR(from, 1, 0);
    CHECK_NEAR(to, 4.5, 0);
    CHECK_NEAR(fg_probe_progress(&tracks[0], from, to), 3.5, 1e-12);
    CHECK_NEAR(fg_probe_progress(&tracks[1], from, to), 1.75, 1e-12);
    CHECK_NEAR(fg_probe_progress(&tracks[1], 0, 100), 3, 1e-12);
    CHECK_NEAR(fg_probe_progress(&tracks[1], 5, 5), 0, 0);
}

static void never_together(int *failures)
{
    const double early[] = {0, 1}, late[] = {1, 2}, one[] = {0};
    FgProbeTrack apart[] = {{early, 2}, {late, 2}}, short_of[] = {{early, 2}, {one, 1}};
    double from, to;
    CHECK(!fg_probe_shared(apart, 2, &from, &to));
    CHECK(!fg_probe_shared(short_of, 2, &from, &to));
    CHECK(!fg_probe_shared(apart, 0, &from, &to));
}

static void factors(int *failures)
{
    CHECK_NEAR(fg_probe_factor(1, 2), 0.5, 0);
    CHECK_NEAR(fg_probe_factor(2, 1), 1, 0);      /* noise */
    CHECK_NEAR(fg_probe_factor(1, 1e9), 0.01, 0); /* as good as still */
    CHECK_NEAR(fg_probe_factor(1, 0), 1, 0);
}

static void curves(int *failures)
{
    FgProbeCurve curve = {{{100, 3}, {200, 4}, {400, 3.5}}, 3};
    CHECK_NEAR(fg_probe_latency(&curve), 2, 1e-12);
    fg_probe_settle(&curve);
    CHECK_NEAR(curve.points[2].seconds, 4, 1e-4);
    CHECK(curve.points[2].seconds > 4);
    FgProbeCurve steep = {{{100, 1}, {200, 9}}, 2}, flat = {{{100, 1}, {200, 0.5}}, 2};
    CHECK_NEAR(fg_probe_latency(&steep), 0, 0);
    CHECK_NEAR(fg_probe_latency(&flat), 0.99, 0);
}

static FgProbeFigures figures(void)
{
    FgProbeFigures f = {.name = "2x \"GPU\"\\\n",
                        .ranks = 2,
                        .memory = (uint64_t)139 << 30,
                        .reserved = 1780000000,
                        .reserved_parts = 90000000,
                        .workspace = 150994944,
                        .host_memory = (uint64_t)64 << 30,
                        .matmul_f32 = 5e13,
                        .matmul_bf16 = 7.12e14,
                        .matmul_f16 = 7e14,
                        .vector = 3e13,
                        .memory_rate = 4.1e12,
                        .launch = 1.5e-6,
                        .attention = {{64, 3e14, 2e14}, {128, 5e14, 4e14}},
                        .n_attention = 2};
    for (uint32_t i = 0; i < 9; i++) {
        double bytes = 65536.0 * (1 << 2 * (i < 8 ? i : 7)) * (i < 8 ? 1 : 2);
        f.gather.points[f.gather.n++] = (FgProbePoint){bytes, 1e-5 + bytes / 5e11};
        f.reduce.points[f.reduce.n++] = (FgProbePoint){bytes, 2e-5 + bytes / 4e11};
        f.all_to_all.points[f.all_to_all.n++] = (FgProbePoint){bytes, 3e-5 + bytes / 6e11};
        f.stash.points[f.stash.n++] = (FgProbePoint){bytes, 1e-5 + bytes / 5e10};
        f.fetch.points[f.fetch.n++] = (FgProbePoint){bytes, 1e-5}; /* as if time stood still */
    }
    f.light_flops = 4e10;
    f.light_matmul = 5.12e14;
    for (uint32_t i = 0; i < FG_PROBE_N_LIGHT; i++)
        f.light[i] = 0.5 + i / 100.0;
    for (uint32_t i = 0; i < FG_PROBE_N_BESIDE; i++)
        f.beside[i] = 0.1 + i / 100.0;
    return f;
}

static void file(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgProbeFigures f = figures();
    FgMachine m = {0};
    FgBuf said;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    CHECK(out != NULL);
    if (!out)
        return;
    fg_probe_settle(&f.fetch);
    fg_probe_write(out, &f);
    fclose(out);
    bool ok = fg_machine_parse(arena, diags, "probed", text, len, &m);
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    CHECK_STR(fg_buf_text(&said), "");
    CHECK(ok);
    CHECK_STR(m.name, f.name);
    CHECK(m.ranks == 2 && m.ranks_per_node == 2 && !m.reserved_estimated);
    CHECK_EQ_U64(m.memory_bytes, f.memory);
    CHECK_EQ_U64(m.reserved_bytes, f.reserved);
    CHECK_EQ_U64(m.reserved_parts, f.reserved_parts);
    CHECK_EQ_U64(m.workspace_bytes, f.workspace);
    CHECK_EQ_U64(m.host_node_bytes, f.host_memory);
    CHECK_NEAR(m.matmul_bf16, 7.12e14, 1);
    CHECK_NEAR(m.launch_seconds, 1.5e-6, 1e-12);
    CHECK(m.attention.len == 2);
    /* Seven digits of a rate. */
    double bytes = f.gather.points[4].bytes, seconds = f.gather.points[4].seconds;
    CHECK_NEAR(fg_curve_seconds(&m.gather, bytes), seconds, 1e-6 * seconds);
    CHECK_NEAR(fg_curve_seconds(&m.reduce, 0), 2e-5, 1e-7);
    CHECK_NEAR(fg_curve_seconds(&m.fetch, 1e6), 1e-5, 1e-9);
    CHECK_NEAR(m.compute_beside_gather, 0.1 + FG_PROBE_compute_gather / 100.0, 1e-9);
    CHECK_NEAR(m.update_beside_reduce, 0.1 + FG_PROBE_update_reduce / 100.0, 1e-9);
    CHECK_NEAR(m.reduce_beside_gather, 0.1 + FG_PROBE_reduce_gather / 100.0, 1e-9);
    seconds = f.all_to_all.points[4].seconds;
    CHECK_NEAR(fg_curve_seconds(&m.all_to_all, bytes), seconds, 1e-6 * seconds);
    CHECK_NEAR(m.compute_beside_parts, 0.1 + FG_PROBE_compute_parts / 100.0, 1e-9);
    CHECK_NEAR(m.parts_beside_gather, 0.1 + FG_PROBE_parts_gather / 100.0, 1e-9);
    CHECK_NEAR(m.fetch_beside_stash, 0.1 + FG_PROBE_fetch_stash / 100.0, 1e-9);
    CHECK_NEAR(m.light_flops, 4e10, 1);
    CHECK(fabs(m.light_bf16 - 5.12e14) < 1 && fabs(m.light_f16 - 5.12e14) < 1);
    CHECK_NEAR(m.light_beside_gather, 0.5 + FG_PROBE_LIGHT_compute_gather / 100.0, 1e-9);
    CHECK_NEAR(m.gather_beside_light, 0.5 + FG_PROBE_LIGHT_gather_compute / 100.0, 1e-9);
    CHECK_NEAR(m.light_beside_reduce, 0.5 + FG_PROBE_LIGHT_compute_reduce / 100.0, 1e-9);
    CHECK_NEAR(m.reduce_beside_light, 0.5 + FG_PROBE_LIGHT_reduce_compute / 100.0, 1e-9);
    CHECK_NEAR(m.light_beside_update, 0.5 + FG_PROBE_LIGHT_compute_update / 100.0, 1e-9);
    CHECK_NEAR(m.update_beside_light, 0.5 + FG_PROBE_LIGHT_update_compute / 100.0, 1e-9);
    CHECK_NEAR(m.light_beside_parts, 0.5 + FG_PROBE_LIGHT_compute_parts / 100.0, 1e-9);
    CHECK_NEAR(m.parts_beside_light, 0.5 + FG_PROBE_LIGHT_parts_compute / 100.0, 1e-9);
    free(text);
    fg_arena_free(arena);
}

/* Of one rank there are no parts: the file says nothing of them, and they are what gathers are. */
static void file_without_parts(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgProbeFigures f = figures();
    FgMachine m = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    f.all_to_all.n = 0;
    for (uint32_t i = FG_PROBE_compute_parts; i < FG_PROBE_N_BESIDE; i++)
        f.beside[i] = 0;
    f.light[FG_PROBE_LIGHT_compute_parts] = f.light[FG_PROBE_LIGHT_parts_compute] = 0;
    f.light_matmul = 0; /* of a chip whose matrix units know no 16 bits */
    fg_probe_settle(&f.fetch);
    fg_probe_write(out, &f);
    fclose(out);
    CHECK(strstr(text, "parts") == NULL && strstr(text, "all_to_all") == NULL);
    CHECK(fg_machine_parse(arena, fg_diags_new(arena), "probed", text, len, &m));
    CHECK(m.all_to_all.len == 0 && !(m.compute_beside_parts > 0));
    CHECK(m.light_flops > 0 && !(m.light_bf16 > 0) && !(m.light_beside_parts > 0));
    free(text);
    fg_arena_free(arena);
}

UNIT_MAIN({"shared_time", shared_time}, {"never_together", never_together}, {"factors", factors},
          {"curves", curves}, {"file", file}, {"file_without_parts", file_without_parts})
