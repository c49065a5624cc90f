/* "optimizer", "scheduler" and the loss scale of "fp16" as options of the trained program, in one
 * note. What is left out there has DeepSpeed's default (ops/adam, runtime/lr_schedules.py,
 * runtime/fp16/loss_scaler.py), which is not always the program's. */
#include "frontend/ds_internal.h"

#include <math.h>
#include <string.h>

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

typedef struct TrainCx {
    FgDsCx *ds;
    FgJsonCx *json;
    FgBuf options;
    FgStrVec remarks;
} TrainCx;

#define OPTIMIZER "optimizer.params."
#define SCHEDULER "scheduler.params."

/* With all digits that the number has: the program is to train with the very same. */
static void option(TrainCx *cx, const char *flag, double value)
{
    const char *text = fg_double_text(cx->json->arena, value);
    size_t n = strlen(text);
    if (n > 2 && strcmp(text + n - 2, ".0") == 0)
        n -= 2;
    fg_buf_printf(&cx->options, " %s %.*s", flag, (int)n, text);
}

/* The number, DeepSpeed's default where it is absent; false where it is "auto". */
static bool number(TrainCx *cx, const FgJson *params, const char *prefix, const char *key,
                   double otherwise, double *out)
{
    const FgJson *value = fg_ds_take(cx->ds, params, prefix, key, FG_JSON_IS_NUMBER);
    *out = value ? value->f : otherwise;
    return value || !params || !fg_json_get(params, key);
}

/* As the program takes it: digits alone, whatever its size. */
static void count_option(TrainCx *cx, const FgJson *params, const char *prefix, const char *key,
                         double otherwise, const char *flag)
{
    double x;
    if (!number(cx, params, prefix, key, otherwise, &x))
        return;
    if (x >= 0 && x <= 1e15 && x == floor(x))
        fg_buf_printf(&cx->options, " %s %.0f", flag, x);
    else
        fg_json_report(cx->json, fg_json_get(params, key)->loc, FG_D_BAD_VALUE,
                       "'%s%s' must be a whole number", prefix, key);
}

static void number_option(TrainCx *cx, const FgJson *params, const char *prefix, const char *key,
                          double otherwise, const char *flag)
{
    double x;
    if (number(cx, params, prefix, key, otherwise, &x))
        option(cx, flag, x);
}

/* ---- optimizer ---- */
static void read_betas(TrainCx *cx, const FgJson *params)
{
    const FgJson *betas = fg_ds_take(cx->ds, params, OPTIMIZER, "betas", FG_JSON_IS_LIST);
    double beta[2] = {0.9, 0.999};
    if (!betas && params && fg_json_get(params, "betas"))
        return;
    if (betas && (betas->n_items != 2 || !(FG_JSON_IS_NUMBER >> betas->items[0].kind & 1) ||
                  !(FG_JSON_IS_NUMBER >> betas->items[1].kind & 1))) {
        fg_json_report(cx->json, betas->loc, FG_D_BAD_VALUE, "'betas' must be two numbers");
        return;
    }
    for (uint32_t i = 0; betas && i < 2; i++)
        beta[i] = betas->items[i].f;
    option(cx, "--beta1", beta[0]);
    option(cx, "--beta2", beta[1]);
}

/* Adam in DeepSpeed is AdamW unless it is told otherwise. */
static void check_decoupled(TrainCx *cx, const FgJson *params, double decay)
{
    const FgJson *mode = fg_ds_take(cx->ds, params, OPTIMIZER, "adam_w_mode", FG_JSON_IS_BOOL);
    if (mode && !mode->i && decay != 0)
        fg_json_report(cx->json, mode->loc, FG_D_BAD_VALUE,
                       "'adam_w_mode' must be true where weights decay: the program trains with "
                       "AdamW");
}

static void read_optimizer(TrainCx *cx, const FgJson *root)
{
    static const char *const keys[] = {"lr", "betas", "eps", "weight_decay", "adam_w_mode"};
    static const char *const sections[] = {"type", "params"};
    const FgJson *optimizer = fg_ds_take(cx->ds, root, "", "optimizer", FG_JSON_IS_OBJECT);
    const FgJson *type = fg_ds_take(cx->ds, optimizer, "optimizer.", "type", FG_JSON_IS_STRING);
    const FgJson *params = fg_ds_take(cx->ds, optimizer, "optimizer.", "params", FG_JSON_IS_OBJECT);
    double decay;
    if (!optimizer)
        return;
    fg_ds_name_unread(cx->ds, optimizer, "optimizer.", sections, N(sections));
    fg_ds_name_unread(cx->ds, params, OPTIMIZER, keys, N(keys));
    if (type && strcmp(type->text, "AdamW") != 0 && strcmp(type->text, "Adam") != 0)
        fg_json_report(cx->json, type->loc, FG_D_BAD_VALUE,
                       "'optimizer.type' must be AdamW or Adam: the program trains with AdamW");
    number_option(cx, params, OPTIMIZER, "lr", 1e-3, "--lr");
    read_betas(cx, params);
    number_option(cx, params, OPTIMIZER, "eps", 1e-8, "--eps");
    if (!number(cx, params, OPTIMIZER, "weight_decay", 0, &decay))
        return;
    option(cx, "--weight-decay", decay);
    check_decoupled(cx, params, decay);
    if (decay != 0)
        fg_vec_push(cx->json->arena, &cx->remarks,
                    "DeepSpeed decays every parameter of a group, --decay all does; the default "
                    "is matrices alone");
}

/* ---- scheduler ---- */
typedef struct Shape {
    const char *type, *word; /* word of --lr-schedule */
    bool decays;             /* towards total_num_steps */
} Shape;

static void read_warmup(TrainCx *cx, const FgJson *params, const Shape *shape)
{
    static const char *const keys[] = {"warmup_max_lr",   "warmup_num_steps", "warmup_type",
                                       "total_num_steps", "warmup_min_lr",    "warmup_min_ratio",
                                       "cos_min_ratio"};
    fg_ds_name_unread(cx->ds, params, SCHEDULER, keys, N(keys));
    if (strcmp(shape->word, "cosine") != 0) {
        double rate;
        if (params && fg_json_get(params, "warmup_max_lr") &&
            number(cx, params, SCHEDULER, "warmup_max_lr", 0, &rate))
            fg_vec_push(cx->json->arena, &cx->remarks,
                        fg_arena_printf(cx->json->arena,
                                        "the scheduler's warmup_max_lr takes the place of the "
                                        "rate: --lr %s",
                                        fg_double_text(cx->json->arena, rate)));
        const FgJson *type =
            fg_ds_take(cx->ds, params, SCHEDULER, "warmup_type", FG_JSON_IS_STRING);
        if (!type || strcmp(type->text, "linear") != 0)
            fg_vec_push(cx->json->arena, &cx->remarks,
                        "DeepSpeed's warm-up has the shape of a logarithm unless warmup_type is "
                        "linear; the program's is a line");
    }
    for (uint32_t i = N(keys) - 3; i < N(keys); i++)
        if (fg_ds_take(cx->ds, params, SCHEDULER, keys[i], FG_JSON_IS_NUMBER))
            fg_vec_push(cx->json->arena, &cx->remarks,
                        fg_arena_printf(cx->json->arena,
                                        "%s is not taken over: the warm-up begins at 0, and "
                                        "--min-lr says where the rate ends",
                                        keys[i]));
    count_option(cx, params, SCHEDULER, "warmup_num_steps", 1000, "--warmup");
    fg_buf_printf(&cx->options, " --lr-schedule %s", shape->word);
    if (shape->decays && params && fg_json_get(params, "total_num_steps"))
        count_option(cx, params, SCHEDULER, "total_num_steps", 0, "--steps");
}

static void read_scheduler(TrainCx *cx, const FgJson *root)
{
    static const Shape shapes[] = {{"WarmupLR", "constant", false},
                                   {"WarmupDecayLR", "linear", true},
                                   {"WarmupCosineLR", "cosine", true}};
    const FgJson *scheduler = fg_ds_take(cx->ds, root, "", "scheduler", FG_JSON_IS_OBJECT);
    const FgJson *type = fg_ds_take(cx->ds, scheduler, "scheduler.", "type", FG_JSON_IS_STRING);
    if (!type)
        return;
    for (uint32_t i = 0; i < N(shapes); i++)
        if (strcmp(type->text, shapes[i].type) == 0) {
            read_warmup(cx,
                        fg_ds_take(cx->ds, scheduler, "scheduler.", "params", FG_JSON_IS_OBJECT),
                        &shapes[i]);
            return;
        }
    fg_json_report(cx->json, type->loc, FG_D_BAD_VALUE,
                   "'scheduler.type' must be WarmupLR, WarmupDecayLR or WarmupCosineLR; leave it "
                   "out and give the program --warmup and --lr-schedule");
}

/* ---- loss scale ---- */
#define FP16 "fp16."

/* The section, where it is enabled; NULL. */
static const FgJson *enabled_fp16(const FgJson *root)
{
    const FgJson *section = fg_json_get(root, "fp16");
    bool object = section && (FG_JSON_IS_OBJECT >> section->kind & 1);
    const FgJson *enabled = object ? fg_json_get(section, "enabled") : NULL;
    return enabled && (FG_JSON_IS_BOOL >> enabled->kind & 1) && enabled->i ? section : NULL;
}

static void read_loss_scale(TrainCx *cx, const FgJson *section)
{
    double fixed = 0, power, least;
    if (!number(cx, section, FP16, "loss_scale", 0, &fixed) || fixed > 0) {
        if (fixed > 0)
            option(cx, "--loss-scale", fixed);
        return;
    }
    if (number(cx, section, FP16, "initial_scale_power", 16, &power)) {
        if (power >= 0 && power <= 64 && power == floor(power))
            fg_buf_printf(&cx->options, " --loss-scale-init %.0f", ldexp(1, (int)power));
        else
            fg_json_report(cx->json, section->loc, FG_D_BAD_VALUE,
                           "'fp16.initial_scale_power' must be a whole number from 0 to 64");
    }
    count_option(cx, section, FP16, "loss_scale_window", 1000, "--loss-scale-window");
    count_option(cx, section, FP16, "hysteresis", 2, "--loss-scale-hysteresis");
    if (number(cx, section, FP16, "min_loss_scale", 1, &least) && least != 1)
        fg_vec_push(cx->json->arena, &cx->remarks,
                    "min_loss_scale is not taken over: a loss scale goes down to 1");
}

void fg_ds_train_notes(FgDsCx *ds, const FgJson *root)
{
    FgJsonCx *json = ds->json;
    TrainCx cx = {.ds = ds, .json = json};
    fg_buf_init(&cx.options, json->arena);
    read_optimizer(&cx, root);
    read_scheduler(&cx, root);
    const FgJson *fp16 = enabled_fp16(root);
    if (fp16)
        read_loss_scale(&cx, fp16);
    const FgJson *from = fg_json_get(root, "optimizer");
    from = from ? from : fg_json_get(root, "scheduler");
    from = from ? from : fp16;
    if (!cx.options.len || json->failed)
        return;
    fg_diag(json->diags, from->loc, FG_D_DS_TRAINING, "options for the trained program:%s",
            fg_buf_text(&cx.options));
    for (uint32_t i = 0; i < cx.remarks.len; i++)
        fg_diag_note(json->diags, FG_NOWHERE, "%s", cx.remarks.data[i]);
}
