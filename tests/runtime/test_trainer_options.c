/* The command line, and the rate schedule it describes. */
#include "runtime/trainer/options.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static bool parse(FgOptions *options, FgFail *fail, const char *line)
{
    char text[512];
    char *argv[32] = {(char *)(uintptr_t)"prog"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    fg_fail_clear(fail);
    for (char *word = strtok(text, " "); word && argc < 32; word = strtok(NULL, " "))
        argv[argc++] = word;
    return fg_options_parse(options, argc, argv, fail);
}

static void refuse(int *failures, const char *line, const char *part)
{
    FgOptions options;
    FgFail fail = {0};
    if (parse(&options, &fail, line) || !strstr(fail.text, part)) {
        printf("%s\n  gives: %s\n  not:   %s\n", line, fail.text ? fail.text : "(accepted)", part);
        ++*failures;
    }
    fg_fail_clear(&fail);
}

static void defaults(int *failures)
{
    FgOptions o;
    FgFail fail = {0};
    CHECK(parse(&o, &fail, "--data=x"));
    CHECK_EQ_U64(o.steps, 10);
    CHECK_EQ_U64(o.seed, 42);
    CHECK_EQ_U64(o.warmup, 0);
    CHECK(o.lr == 3e-4 && o.beta1 == 0.9 && o.beta2 == 0.95 && o.eps == 1e-8 &&
          o.weight_decay == 0.1 && o.min_lr == 0);
    CHECK(o.lr_schedule == FG_LR_CONSTANT && !o.checked && !o.weights && !o.save);
}

static void values(int *failures)
{
    FgOptions o;
    FgFail fail = {0};
    CHECK(parse(&o, &fail,
                "--inputs x --steps 7 --lr 1e-2 --warmup=3 --min-lr 1e-5 --lr-schedule linear "
                "--beta1 0 --checked --seed 18446744073709551615 --global-batch 6"));
    CHECK_EQ_U64(o.steps, 7);
    CHECK_EQ_U64(o.warmup, 3);
    CHECK_EQ_U64(o.seed, UINT64_MAX);
    CHECK_EQ_U64(o.global_batch, 6);
    CHECK(o.lr == 1e-2 && o.min_lr == 1e-5 && o.beta1 == 0 && o.checked);
    CHECK(o.lr_schedule == FG_LR_LINEAR);
}

static void usage_errors(int *failures)
{
    refuse(failures, "--dat x", "unknown option '--dat'; did you mean '--data'?");
    refuse(failures, "--data x --stps=3", "did you mean '--steps'?");
    refuse(failures, "--data x --frobnicate", "--help lists them");
    refuse(failures, "--data x extra", "unexpected argument 'extra'");
    refuse(failures, "--data", "--data needs a value");
    refuse(failures, "--data x --steps -3", "not a whole number");
    refuse(failures, "--data x --steps 3.5", "not a whole number");
    refuse(failures, "--data x --steps 99999999999999999999", "not a whole number");
    refuse(failures, "--data x --steps 0", "at least 1");
    refuse(failures, "--data x --print-every 0", "at least 1");
    refuse(failures, "--data x --lr 1e", "not a number");
    refuse(failures, "--data x --lr nan", "not a number");
    refuse(failures, "--data x --lr -1", "below 0");
    refuse(failures, "--data x --beta2 1", "below 1");
    refuse(failures, "--data x --lr-schedule step", "not constant, linear or cosine");
    refuse(failures, "--data x --checked=1", "takes no value");
    refuse(failures, "--steps 3", "give --data FILE or --inputs FILE");
    refuse(failures, "--data x --inputs y", "exclude each other");
    refuse(failures, "--data x --weights y --resume z", "exclude each other");
    refuse(failures, "--data x --save-every 2", "needs --save");
    refuse(failures, "--data x --dump-grads g --save d", "stops after one step");
    refuse(failures, "--data x --weights-prefix p.", "of the names in --weights FILE");
    refuse(failures, "--tune --data x", "for cuda programs"); /* this is the host's runtime */
    refuse(failures, "--tune", "for cuda programs");
    refuse(failures, "--data x --profile-ops adamw", "--profile FILE, which is not given");
}

static void fits_the_program(int *failures)
{
    FgRtProgram program = {.ranks = 2, .batch = 3};
    FgOptions o;
    FgFail fail = {0};
    CHECK(parse(&o, &fail, "--data x --local-ranks 2 --global-batch 6"));
    CHECK(fg_options_fit(&o, &program, &fail));
    CHECK(parse(&o, &fail, "--data x --local-ranks 4"));
    CHECK(!fg_options_fit(&o, &program, &fail));
    CHECK(strstr(fail.text, "--ranks 4"));
    CHECK(parse(&o, &fail, "--data x --global-batch 7"));
    CHECK(!fg_options_fit(&o, &program, &fail));
    CHECK(strstr(fail.text, "1 to 6 rows"));
    CHECK(parse(&o, &fail, "--data x --global-batch 0"));
    CHECK(!fg_options_fit(&o, &program, &fail));
    CHECK(parse(&o, &fail, "--data x --local-ranks 0"));
    CHECK(!fg_options_fit(&o, &program, &fail));
    fg_fail_clear(&fail);
}

/* What the host's runtime has no use for. */
static void idle_options(int *failures)
{
    FgOptions o;
    FgFail fail = {0};
    CHECK(parse(&o, &fail, "--data x --attention library --deterministic --poison"));
    CHECK(!fg_options_idle(&o));
    CHECK(parse(&o, &fail,
                "--data x --no-graph --rendezvous foo --gemm-cache x --attention builtin"));
    char *idle = fg_options_idle(&o);
    CHECK(idle && strcmp(idle, "--rendezvous, --no-graph, --attention, --gemm-cache") == 0);
    free(idle);
}

/* The rates of a run of torch's: 200 steps, 20 of warm-up, cosine from 3e-3 to 3e-4. */
static void cosine(int *failures)
{
    FgLrSchedule s = {FG_LR_COSINE, 3e-3, 3e-4, 20, 200};
    CHECK_NEAR(fg_lr_at(&s, 0), 0.00015, 1e-18);
    CHECK_NEAR(fg_lr_at(&s, 18), 0.00285, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 19), 0.003, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 20), 0.003, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 21), 0.0029997943884611284, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 25), 0.0029948628424238564, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 35), 0.002953999865490242, 1e-17);
    CHECK_NEAR(fg_lr_at(&s, 51), 0.0028071758559478515, 1e-17);
    CHECK(fg_lr_at(&s, 199) > 3e-4 && fg_lr_at(&s, 199) < 3.003e-4);
}

static void other_shapes(int *failures)
{
    FgLrSchedule s = {FG_LR_LINEAR, 1, 0.5, 2, 12};
    CHECK_NEAR(fg_lr_at(&s, 0), 0.5, 0);
    CHECK_NEAR(fg_lr_at(&s, 2), 1, 0);
    CHECK_NEAR(fg_lr_at(&s, 7), 0.75, 1e-15);
    CHECK_NEAR(fg_lr_at(&s, 12), 0.5, 1e-15);
    CHECK_NEAR(fg_lr_at(&s, 99), 0.5, 1e-15);
    s.shape = FG_LR_CONSTANT;
    CHECK_NEAR(fg_lr_at(&s, 11), 1, 0);
    s = (FgLrSchedule){FG_LR_COSINE, 1, 0, 5, 3}; /* the run ends within the warm-up */
    CHECK_NEAR(fg_lr_at(&s, 2), 0.6, 1e-15);
    CHECK_NEAR(fg_lr_at(&s, 5), 1, 0);
}

UNIT_MAIN({"defaults", defaults}, {"values", values}, {"usage errors", usage_errors},
          {"fits the program", fits_the_program}, {"idle options", idle_options},
          {"cosine", cosine}, {"other shapes", other_shapes})
