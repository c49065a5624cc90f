/* Machines: presets, files, curves, and what bad files are told. */
#include "base/file.h"
#include "base/str.h"
#include "frontend/machine.h"
#include "tests/unit/unit.h"

static FgMachine load(int *failures, FgArena *arena, const char *name)
{
    FgDiags *diags = fg_diags_new(arena);
    FgMachine machine = {0};
    CHECK(fg_machine_load(arena, diags, name, &machine));
    CHECK_EQ_U64(fg_diags_errors(diags), 0);
    return machine;
}

static void presets(int *failures)
{
    FgArena *a = fg_arena_new();
    uint32_t n;
    const char *const *names = fg_machine_preset_names(&n);
    CHECK_EQ_U64(n, 5);
    for (uint32_t i = 0; i < n; i++) {
        FgMachine m = load(failures, a, names[i]);
        CHECK_STR(m.name, names[i]);
        CHECK(m.ranks >= 2 && m.ranks_per_node == m.ranks);
        CHECK(m.memory_bytes > m.reserved_bytes && m.workspace_bytes > 0);
        CHECK(m.matmul_f32 > 0 && m.matmul_bf16 > 0 && m.matmul_f16 > 0 && m.vector_flops > 0);
        CHECK(m.memory_rate > 0 && m.launch_seconds > 0);
        CHECK(m.compute_beside_gather > 0 && m.reduce_beside_gather > 0);
        CHECK(fg_machine_host_bytes(&m) >= (uint64_t)16e9 && m.stash.len > 1 && m.fetch.len > 1);
        for (uint32_t k = 1; k < m.gather.len; k++)
            CHECK(m.gather.data[k].seconds > m.gather.data[k - 1].seconds);
    }
    fg_arena_free(a);
}

static void figures(int *failures)
{
    FgArena *a = fg_arena_new();
    FgMachine t4 = load(failures, a, "2xT4");
    CHECK_EQ_U64(t4.ranks, 2);
    CHECK_EQ_U64(t4.memory_bytes, 15644418375);
    CHECK_EQ_U64(t4.reserved_bytes, 322122547);
    CHECK(t4.reserved_estimated);
    FgMachine h200 = load(failures, a, "4xH200");
    CHECK_EQ_U64(h200.ranks, 4);
    CHECK_EQ_U64(h200.reserved_bytes, 1780000000);
    CHECK(!h200.reserved_estimated);
    CHECK_EQ_U64(h200.workspace_bytes, 144 << 20);
    CHECK_EQ_U64(load(failures, a, "host").workspace_bytes, 4 << 20);
    /* All-gather by copy engines on four H200s: 268 MB at 335 GB/s of bus bandwidth, and twice the
     * largest of the curve in twice its time. */
    CHECK_NEAR(fg_curve_seconds(&h200.gather, 268e6), 268e6 * 0.75 / 335e9, 1e-9);
    CHECK_NEAR(fg_curve_seconds(&h200.gather, 2140e6), 2 * 1070e6 * 0.75 / 361e9, 1e-9);
    CHECK_NEAR(fg_curve_seconds(&h200.gather, 0), 3.8e-5, 1e-12);
    CHECK(h200.light_flops > 0 && h200.light_bf16 < h200.matmul_bf16);
    CHECK(!(t4.light_flops > 0)); /* nothing is light there */
    /* Host copies: bytes by bytes a second, whatever the ranks; ranks of a node share its memory.
     */
    FgMachine h100 = load(failures, a, "8xH100");
    CHECK_EQ_U64(fg_machine_host_bytes(&h100), 2000000000000 / 8);
    CHECK_NEAR(fg_curve_seconds(&t4.fetch, 32e6), 32e6 / 12e9, 1e-9);
    CHECK_NEAR(t4.stash_beside_fetch, 0.9, 0);
    CHECK_NEAR(t4.compute_beside_host, 0, 0);
    fg_arena_free(a);
}

static void other_ranks(int *failures)
{
    FgArena *a = fg_arena_new();
    FgMachine m = load(failures, a, "2xH200");
    double before = fg_curve_seconds(&m.gather, 128e6), latency = m.gather.data[0].seconds;
    fg_machine_set_ranks(a, &m, 8);
    CHECK_EQ_U64(m.ranks, 8);
    CHECK_EQ_U64(m.ranks_per_node, 8);
    CHECK_NEAR(fg_curve_seconds(&m.gather, 128e6),
               latency + (before - latency) * (7.0 / 8) / (1.0 / 2), 1e-12);
    fg_machine_set_ranks(a, &m, 1);
    CHECK_NEAR(fg_curve_seconds(&m.gather, 128e6), before, 1e-12);
    fg_arena_free(a);
}

static void from_file(int *failures)
{
    FgArena *a = fg_arena_new();
    const char *error, *dir = fg_temp_dir(a, &error);
    const char *path = fg_arena_printf(a, "%s/machine.json", dir);
    static const char text[] =
        "{\"foregather_machine\": 1, \"name\": \"mine\", \"like\": \"2xT4\", \"ranks\": 4,\n"
        " \"memory\": \"24 GB\", \"reserved\": 1000,\n"
        " \"attention\": [[64, 3e12, 2e12], [128, 5e12, 4e12]],\n"
        " \"beside\": {\"compute_gather\": 0.25, \"update_compute\": 0.75, \"gather_update\": 1,\n"
        "  \"compute_parts\": 0.5, \"parts_gather\": 0.25}, \"reserved_parts\": \"1 KB\",\n"
        " \"all_to_all\": {\"latency\": 1e-5, \"bus_rates\": [[1e6, 2e9]]}}";
    CHECK(fg_file_write(a, path, text, sizeof text - 1, &error));
    FgMachine m = load(failures, a, path);
    CHECK_STR(m.name, "mine");
    CHECK_EQ_U64(m.ranks, 4);
    CHECK_EQ_U64(m.memory_bytes, 24000000000);
    CHECK(m.reserved_bytes == 1000 && !m.reserved_estimated);
    CHECK_NEAR(m.compute_beside_gather, 0.25, 0);
    CHECK_NEAR(m.gather_beside_compute, 0.9, 0);
    CHECK_NEAR(m.update_beside_compute, 0.75, 0);
    CHECK_NEAR(m.gather_beside_update, 1.0, 0);
    CHECK_NEAR(m.compute_beside_update, 0, 0);
    CHECK_EQ_U64(m.reserved_parts, 1000);
    CHECK_NEAR(m.compute_beside_parts, 0.5, 0);
    CHECK_NEAR(m.parts_beside_gather, 0.25, 0);
    CHECK_NEAR(m.gather_beside_parts, 0, 0);
    CHECK_NEAR(fg_curve_seconds(&m.all_to_all, 1e6), 1e6 * 0.75 / 2e9, 1e-12);
    CHECK(m.attention.len == 2 && m.attention.data[1].dim == 128.0);
    CHECK_NEAR(m.attention.data[0].backward, 2e12, 0);
    CHECK_NEAR(m.matmul_f16, 4e13, 0);
    FgMachine t4 = load(failures, a, "2xT4");
    fg_machine_set_ranks(a, &t4, 4);
    CHECK_NEAR(fg_curve_seconds(&m.reduce, 5e6), fg_curve_seconds(&t4.reduce, 5e6), 1e-15);
    fg_temp_dir_remove(a, dir);
    fg_arena_free(a);
}

static FgMachine parse(int *failures, FgArena *a, const char *text)
{
    FgMachine m = {0};
    CHECK(fg_machine_parse(a, fg_diags_new(a), "m", text, strlen(text), &m));
    return m;
}

/* Light work: its threshold alone where nothing has any, one more key where a preset has it all,
 * and none of it changes with the ranks. */
static void light_work(int *failures)
{
    FgArena *a = fg_arena_new();
    FgMachine h200 = load(failures, a, "2xH200");
    FgMachine m = parse(failures, a,
                        "{\"foregather_machine\": 1, \"like\": \"2xT4\",\n"
                        " \"light\": {\"flops\": 1e10}}");
    CHECK_NEAR(m.light_flops, 1e10, 0);
    CHECK(!(m.light_bf16 > 0 || m.light_beside_gather > 0 || m.parts_beside_light > 0));
    m = parse(failures, a,
              "{\"foregather_machine\": 1, \"like\": \"2xH200\", \"ranks\": 8,\n"
              " \"light\": {\"f16\": 2e14, \"update_compute\": 0.25}}");
    CHECK(m.light_flops == h200.light_flops && m.light_bf16 == h200.light_bf16);
    CHECK_NEAR(m.light_f16, 2e14, 0);
    CHECK_NEAR(m.update_beside_light, 0.25, 0);
    CHECK(m.light_beside_update == h200.light_beside_update && h200.light_beside_update > 0);
    fg_arena_free(a);
}

static const struct {
    const char *text;
    FgDiagId id;
    const char *expect;
} BAD[] = {
    {"{\"foregather_machine\": 1, \"like\": \"2xT3\"}", FG_D_UNKNOWN_MACHINE,
     "did you mean '2xT4'?"},
    {"{\"foregather_machine\": 3, \"like\": \"2xT4\"}", FG_D_BAD_VALUE,
     "m:1:24: error: this program reads"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memroy\": 5}", FG_D_UNKNOWN_KEY,
     "did you mean 'memory'?"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memory\": \"12 XB\"}", FG_D_BAD_VALUE,
     "'memory' is no size"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memory\": 100}", FG_D_BAD_VALUE,
     "leaves nothing"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memory\": -1}", FG_D_BAD_VALUE,
     "'memory' is no size"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memory\": \"4194304 TiB\"}", FG_D_BAD_VALUE,
     "'memory' must be less than 2^62 bytes"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"ranks\": 0}", FG_D_BAD_VALUE,
     "'ranks' must be 1 to 65536"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"vector\": 0}", FG_D_BAD_VALUE,
     "greater than 0"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"memory_rate\": 1e-300}", FG_D_BAD_VALUE,
     "'memory_rate' must not be less than 1"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"beside\": {\"compute_gather\": 1e-9}}",
     FG_D_BAD_VALUE, "must not be less than 0.001"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"gather\": {\"latency\": 1e-5, "
     "\"bus_rates\": [[1e300, 1e-300]]}}",
     FG_D_BAD_VALUE, "up to 2^62; 1 to 1e+30"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"gather\": {\"latency\": 1e300, "
     "\"bus_rates\": [[1e6, 1e9]]}}",
     FG_D_BAD_VALUE, "or more than 3600"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"beside\": {\"compute_gather\": 1.5}}",
     FG_D_BAD_VALUE, "must not be greater than 1"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"light\": {\"bf16\": 1e14}}",
     FG_D_MISSING_KEY, "'flops'"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"light\": {\"flops\": 0}}", FG_D_BAD_VALUE,
     "'flops' must be greater than 0"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"light\": []}", FG_D_WRONG_TYPE,
     "must be an object"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"light\": {\"flops\": 1e10, "
     "\"compute_update\": 2}}",
     FG_D_BAD_VALUE, "must not be greater than 1"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"light\": {\"flops\": 1e10, "
     "\"compute_host\": 1}}",
     FG_D_UNKNOWN_KEY, "compute_host"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"gather\": {\"latency\": 1e-5, "
     "\"bus_rates\": [[1e6]]}}",
     FG_D_BAD_VALUE, "a point is [bytes, bytes a second]"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\",\n \"gather\": {\"latency\": 1e-5, "
     "\"bus_rates\": [[2e6, 1e9], [1e6, 1e9]]}}",
     FG_D_BAD_VALUE, "m:2:56: error: more bytes must follow"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"gather\": {\"latency\": 1e-5, "
     "\"bus_rates\": []}}",
     FG_D_BAD_VALUE, "has no point"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"fetch\": {\"latency\": 1e-5, "
     "\"bus_rates\": []}}",
     FG_D_UNKNOWN_KEY, "bus_rates"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"beside\": {\"host_link\": 0}}",
     FG_D_BAD_VALUE, "'host_link' must be greater than 0"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"beside\": {\"compute_update\": 0}}",
     FG_D_BAD_VALUE, "'compute_update' must be greater than 0"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"attention\": [[64, 1e12, 1e12], [64, "
     "1e12, 1e12]]}",
     FG_D_BAD_VALUE, "m:1:75: error: a rate of attention is"},
    {"{\"foregather_machine\": 1, \"like\": \"2xT4\", \"attention\": [[64, 1e12]]}", FG_D_BAD_VALUE,
     "a rate of attention is [head dim, forward, backward]"},
    {"{\"foregather_machine\": 1}", FG_D_MISSING_KEY, "the key 'beside' is missing"},
    {"[]", FG_D_WRONG_TYPE, "a machine must be an object, not a list"},
    {"", FG_D_JSON_SYNTAX, "m:1:1: error: expected a value, found end of the text"},
};

static void bad_files(int *failures)
{
    FgArena *a = fg_arena_new();
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        FgDiags *diags = fg_diags_new(a);
        FgMachine machine;
        bool ok = fg_machine_parse(a, diags, "m", BAD[i].text, strlen(BAD[i].text), &machine);
        FgBuf buf;
        fg_buf_init(&buf, a);
        fg_diags_render(diags, &buf);
        bool found = strstr(fg_buf_text(&buf), BAD[i].expect) != NULL;
        if (ok || !found)
            printf("%s\n%s", BAD[i].text, fg_buf_text(&buf));
        CHECK(!ok && found && fg_diags_has(diags, BAD[i].id));
    }
    FgDiags *diags = fg_diags_new(a);
    FgMachine machine;
    CHECK(!fg_machine_load(a, diags, "4xH20", &machine));
    FgBuf buf;
    fg_buf_init(&buf, a);
    fg_diags_render(diags, &buf);
    CHECK_STR(fg_buf_text(&buf),
              "error: no machine preset and no file is named '4xH20' [unknown-machine]\n"
              "note: did you mean '4xH200'?\n"
              "note: the presets are host, 2xT4, 2xH200, 4xH200, 8xH100\n"
              "1 error\n");
    fg_arena_free(a);
}

UNIT_MAIN({"presets", presets}, {"figures", figures}, {"other ranks", other_ranks},
          {"from file", from_file}, {"light work", light_work}, {"bad files", bad_files})
