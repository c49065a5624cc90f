/* Faults in functions of fused chains, for the host and for GPUs: in what they read, how far they
 * go, what they write, how they are launched; in their calls and the rows of their operands. Each
 * is planted at the first place of each program, with FG_MUTANTS=all in the environment at every
 * one. All must be refused without a plan but those that compute something else from the same
 * bytes: these with the plan. */
#include "../unit/unit.h"

#include "program.h"

#include <stdlib.h>

static const Variant variants[] = {
    {.title = "chains", .model = "tests/data/chains/model.json", .ranks = 2, .precision = FG_BF16},
    {.title = "chains for 2 T4",
     .model = "tests/data/chains/model.json",
     .machine = "2xT4",
     .ranks = 2,
     .precision = FG_BF16},
};

typedef struct Fault {
    const char *from, *to;
    bool same_bytes; /* it computes something else; refused with the plan alone */
} Fault;

static const Fault faults[] = {
    /* the value */
    {" + x", " - x", true},
    {" + x1", " + x0", true},
    {"fg_round_bf16(x0", "fg_round_f16(x0", true},
    {"fg_round_bf16(", "(", false},
    {"fg_chain_scale(", "fg_chain_pow(", true},
    {"fg_chain_scale(", "fg_chain_silu(", false},
    {"return ", "return -", false},
    {"float t0 = ", "float t9 = ", false},
    {"FG_INLINE float value_fused_0(float x0,", "FG_INLINE float value_fused_0(float x9,", false},
    /* which element */
    {"x0[i]", "x0[i + 1]", false},
    {"x0[i]", "x0[i % 1]", false},
    {"x0[i]", "x1[i]", false},
    {"x1[i % 16]", "x1[i]", false},
    {"x1[i % 16]", "x1[i % 17]", false},
    {"x1[i % 16]", "x1[i / 16]", false},
    {"x2[i / 16]", "x2[i / 15]", false},
    {"x2[i / 16]", "x2[i / 0]", false},
    {"x3[i % 1]", "x3[i]", false},
    {"fg_pack(x0, p)", "fg_pack(x0, p + 1)", false},
    {"fg_pack(x0, p)", "fg_pack(x1, p)", false},
    {"fg_pack(x1, p % 2)", "fg_pack(x1, p % 3)", false},
    {"fg_pack(x1, p % 2)", "fg_pack(x1, p)", false},
    {"x2[p / 2]", "x2[p]", false},
    {"x2[p / 2]", "x2[p / 1]", false},
    {".v[j]", ".v[j + 1]", false},
    {"a0.v[j]", "a1.v[j]", false},
    /* how far */
    {"i < n", "i <= n", false},
    {"i < n", "i < n + 1", false},
    {"int64_t i = 0", "int64_t i = 1", false},
    {"i = 8 * packs", "i = 9 * packs", false},
    {"i = 8 * packs + ", "i = ", false},
    {"p < packs", "p <= packs", false},
    {"p += fg_threads()", "p++", false},
    {"i += fg_threads()", "i += 1", false},
    {"= fg_thread(); p", "= 0; p", false},
    {"+ fg_thread(); i", "; i", false},
    {"j < 8", "j < 9", false},
    {"fg_custom_elements(call, 4)", "fg_custom_elements(call, 0)", false},
    {"fg_custom_elements(call, 2)", "fg_custom_elements(call, 1)", false},
    {"fg_custom_elements(call, 4)", "fg_custom_elements(call, 4) + 1", false},
    /* what is written */
    {"y[i] = ", "x0[i] = ", false},
    {"y[i] = ", "y[i + 1] = ", false},
    {"fg_unpack(y, p, b)", "fg_unpack(x0, p, b)", false},
    {"fg_unpack(y, p, b)", "fg_unpack(y, p + 1, b)", false},
    {"const FgBf16 *x0", "FgBf16 *x0", false},
    {"FgBf16 *y", "const FgBf16 *y", false},
    {"FgBf16 *y", "FgF16 *y", false},
    {"fg_to_bf16(value", "fg_to_f16(value", false},
    {"fg_from_bf16(x0", "fg_from_f16(x0", false},
    /* the launch */
    {"fg_chain_packs(call)", "n / 8", false},
    {"fg_chain_blocks(n, packs)", "1", false},
    {"FG_CHAIN_THREADS, 0", "32, 0", false},
    {"fg_chain_stream(call)", "0", false},
    {"(x0, x1, y, n, packs)", "(x1, x0, y, n, packs)", false},
    {"(x0, x1, y, n, packs)", "(x0, x1, y, packs, n)", false},
    {"kernel_fused_0<<<", "kernel_fused_1<<<", false},
    {"value_fused_0(", "value_fused_1(", false},
    /* the parts */
    {"\n#else\n", "\n", false},
    {"\n#endif\n", "\n", false},
    {"#ifndef __CUDACC__", "#ifdef __CUDACC__", false},
    {"extern \"C\" void", "void", false},
    {"FG_KERNEL kernel", "void kernel", false},
    /* calls and rows */
    {", 5, 128);", ", 5, 136);", false},
    {", 5, 128);", ", 4, 128);", false},
    {", 3, 128);", ", 5, 128);", false},
    {"FG_COMPUTE, 0, 0, 5", "FG_COMPUTE, 1, 0, 5", false},
    {"FG_COMPUTE, 0, 0, 5", "FG_COMPUTE, 7, 0, 5", false},
    {"FG_COMPUTE, 0, 0, 5", "FG_COMPUTE, 0, 3, 5", false},
    {"FG_COMPUTE, 0, 0, 5", "FG_COMPUTE, 0, 4000, 5", false},
    {"fg_rt_fused(", "fg_rt_custom(", false},
    {"{FG_RT_BF16, 0, ", "{FG_RT_BF16, 1, ", false},
    {"{FG_RT_BF16, 0, ", "{FG_RT_F16, 0, ", false},
    {"{FG_RT_BF16, 1, ", "{FG_RT_BF16, 0, ", false},
    {"{FG_RT_BF16, 1, ", "{FG_RT_BF16, 1, 64 + ", false},
    {"{FG_RT_BF16, 0, ", "{FG_RT_BF16, 0, 16 + ", true},
    {", 128, ", ", 120, ", false},
    {", 16, ", ", 8, ", false},
    {", 8, ", ", 16, ", false},
};
#define N_FAULTS (sizeof faults / sizeof *faults)

typedef struct Count {
    uint32_t places, alone;
} Count;

static bool refused(const char *text, const FgModule *plan)
{
    FgArena *scratch = fg_arena_new();
    Verdict verdict = program_verdict(scratch, text, strlen(text), plan);
    fg_arena_free(scratch);
    return !verdict.ok;
}

/* Rows of operands begin so; numbers elsewhere are other tests' business. */
static bool in_row(const Program *program, const char *at)
{
    while (at > program->text && at[-1] != '\n')
        at--;
    return !strncmp(at, "    {FG_RT_", 11);
}

static void plant(const Program *program, const Fault *fault, Count *count, int *failures)
{
    FgArena *arena = fg_arena_new();
    bool number = fault->from[0] == ',' && fault->from[strlen(fault->from) - 1] == ' ';
    bool more = true, all = getenv("FG_MUTANTS") != NULL;
    for (const char *at = program->text; more && (at = strstr(at, fault->from)); at++) {
        if (number && !in_row(program, at))
            continue;
        const char *text = fg_arena_printf(arena, "%.*s%s%s", (int)(at - program->text),
                                           program->text, fault->to, at + strlen(fault->from));
        bool alone = refused(text, NULL), with = alone || refused(text, program->plan);
        more = all;
        count->places++;
        count->alone += alone;
        CHECK(with && (alone || fault->same_bytes));
        if (!with || (!alone && !fault->same_bytes))
            printf("%s: '%s' instead of '%s' passes%s at %.40s\n", program->variant->title,
                   fault->to, fault->from, with ? " alone" : "", at);
    }
    fg_arena_free(arena);
}

static void every_fault_is_refused(int *failures)
{
    uint32_t places[N_FAULTS] = {0};
    Count sum = {0, 0};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        FgArena *arena = fg_arena_new();
        Program program;
        bool made = program_make(arena, &variants[v], &program);
        CHECK(made);
        CHECK(made && !refused(program.text, program.plan));
        for (size_t i = 0; made && i < N_FAULTS; i++) {
            uint32_t before = sum.places;
            plant(&program, &faults[i], &sum, failures);
            places[i] += sum.places - before;
        }
        fg_arena_free(arena);
    }
    for (size_t i = 0; i < N_FAULTS; i++) {
        CHECK(places[i] > 0);
        if (!places[i])
            printf("nowhere: %s\n", faults[i].from);
    }
    printf("| chains | %u | %u | %u |\n", sum.places, sum.alone, sum.places);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
