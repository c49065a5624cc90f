/* Reads a DeepSpeed configuration: each section in turn, then what was not read is named. Null and
 * "auto" (which other trainers fill in) leave a flag at its default. */
#include "frontend/ds_config.h"

#include "base/checked.h"
#include "base/file.h"
#include "frontend/ds_internal.h"

#include <inttypes.h>
#include <string.h>

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

static void add_name(FgDsNames *names, FgLoc loc, const char *prefix, const char *key)
{
    if (!names->text.len)
        names->first = loc;
    fg_buf_printf(&names->text, "%s%s%s", names->text.len ? ", " : "", prefix, key);
}

const FgJson *fg_ds_take(FgDsCx *cx, const FgJson *object, const char *prefix, const char *key,
                         int kinds)
{
    const FgJson *value = object ? fg_json_get(object, key) : NULL;
    if (!value || value->kind == FG_JSON_NULL)
        return NULL;
    if (value->kind == FG_JSON_STRING && strcmp(value->text, "auto") == 0) {
        add_name(&cx->autos, value->loc, prefix, key);
        return NULL;
    }
    return fg_json_want(cx->json, object, key, kinds);
}

void fg_ds_name_unread(FgDsCx *cx, const FgJson *object, const char *prefix,
                       const char *const *keys, uint32_t n)
{
    for (uint32_t i = 0; object && i < object->n_items; i++) {
        const FgJson *item = &object->items[i];
        bool known = strcmp(item->key, "comment") == 0;
        for (uint32_t k = 0; k < n && !known; k++)
            known = strcmp(item->key, keys[k]) == 0;
        const char *near = known ? NULL : fg_closest(item->key, keys, n);
        if (near) {
            fg_diag(cx->json->diags, item->key_loc, FG_D_DS_UNREAD,
                    "the key '%s%s' is not known, and left out", prefix, item->key);
            fg_diag_note(cx->json->diags, FG_NOWHERE, "did you mean '%s'?", near);
        } else if (!known) {
            add_name(&cx->unread, item->key_loc, prefix, item->key);
        }
    }
}

static void set(FgDsCx *cx, const FgJson *from, const char *prefix, const char *flag,
                const char *value)
{
    const char *key = fg_arena_printf(cx->arena, "%s%s", prefix, from->key);
    FgDsSetting setting = {key, from->loc, flag, value};
    fg_vec_push(cx->arena, &cx->out->settings, setting);
}

/* ---- batch, accumulation, clipping, dtypes ---- */
static void read_count(FgDsCx *cx, const FgJson *root, const char *key, FgDsCount *out)
{
    const FgJson *value = fg_ds_take(cx, root, "", key, FG_JSON_IS_INT);
    if (!value)
        return;
    if (value->i < 1 || value->i > INT32_MAX)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be 1 to %d", key,
                       INT32_MAX);
    else
        *out = (FgDsCount){value->i, value->loc};
}

static void read_clipping(FgDsCx *cx, const FgJson *root)
{
    const FgJson *value = fg_ds_take(cx, root, "", "gradient_clipping", FG_JSON_IS_NUMBER);
    if (!value)
        return;
    if (value->f < 0)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                       "'gradient_clipping' must not be negative");
    else /* 0 is no clipping, in both */
        set(cx, value, "", "--clip", value->f > 0 ? fg_double_text(cx->arena, value->f) : NULL);
}

static const FgJson *read_enabled(FgDsCx *cx, const FgJson *root, const char *section)
{
    static const char *const keys[] = {"enabled",           "loss_scale", "initial_scale_power",
                                       "loss_scale_window", "hysteresis", "min_loss_scale"};
    const FgJson *object = fg_ds_take(cx, root, "", section, FG_JSON_IS_OBJECT);
    const char *prefix = fg_arena_printf(cx->arena, "%s.", section);
    const FgJson *enabled = fg_ds_take(cx, object, prefix, "enabled", FG_JSON_IS_BOOL);
    bool scales = strcmp(section, "fp16") == 0 && enabled && enabled->i; /* ds_train.c reads them */
    fg_ds_name_unread(cx, object, prefix, keys, scales ? N(keys) : 1);
    return enabled;
}

static void read_precision(FgDsCx *cx, const FgJson *root)
{
    const char *name = fg_json_get(root, "bfloat16") ? "bfloat16" : "bf16"; /* its older name */
    const FgJson *bf16 = read_enabled(cx, root, name), *fp16 = read_enabled(cx, root, "fp16");
    const char *prefix = fg_arena_printf(cx->arena, "%s.", name);
    if (bf16 && bf16->i && fp16 && fp16->i)
        fg_json_report(cx->json, fp16->loc, FG_D_BAD_VALUE, "bf16 and fp16 are both enabled");
    else if (bf16 && bf16->i)
        set(cx, bf16, prefix, "--precision", "bf16");
    else if (fp16)
        set(cx, fp16, "fp16.", "--precision", fp16->i ? "fp16" : "fp32");
    else if (bf16)
        set(cx, bf16, prefix, "--precision", "fp32");
}

static void read_wire(FgDsCx *cx, const FgJson *root)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    const FgJson *value = fg_ds_take(cx, root, "", "communication_data_type", FG_JSON_IS_STRING);
    if (!value)
        return;
    for (uint32_t i = 0; i < N(names); i++)
        if (strcmp(value->text, names[i]) == 0) {
            set(cx, value, "", "--reduce-dtype", names[i]);
            return;
        }
    fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                   "'communication_data_type' must be fp32, bf16 or fp16");
}

/* ---- zero_optimization ---- */
#define ZERO "zero_optimization."

/* DeepSpeed would shard nothing. Its user may have forgotten the key, or mean just that: neither is
 * for this to guess. */
static void no_stage(FgDsCx *cx, const FgJson *object, const char *key)
{
    fg_json_report(
        cx->json, object->loc, FG_D_MISSING_KEY,
        "'%s' is not there, which DeepSpeed takes as stage 0; here parameters, gradients "
        "and optimizer state are always sharded: say \"zero_optimization\": {\"stage\": "
        "3}",
        key);
}

typedef struct Knob {
    const char *key, *flag;
} Knob;

static void read_elements(FgDsCx *cx, const FgJson *zero, const Knob *knob)
{
    const FgJson *value = fg_ds_take(cx, zero, ZERO, knob->key, FG_JSON_IS_NUMBER);
    if (!value)
        return;
    bool whole = value->kind == FG_JSON_INT ||
                 (value->f >= 0 && value->f <= 1e18 && value->f == (double)(int64_t)value->f);
    int64_t n = value->kind == FG_JSON_INT ? value->i : whole ? (int64_t)value->f : -1;
    if (n < 0)
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                       "'%s' must be a whole number of elements", knob->key);
    else
        set(cx, value, ZERO, knob->flag, fg_arena_printf(cx->arena, "%" PRId64, n));
}

/* The "device" of an offload section; NULL where nothing leaves the device. */
static const FgJson *offloaded(FgDsCx *cx, const FgJson *zero, const char *section)
{
    static const char *const keys[] = {"device"};
    const FgJson *object = fg_ds_take(cx, zero, ZERO, section, FG_JSON_IS_OBJECT);
    const char *prefix = fg_arena_printf(cx->arena, ZERO "%s.", section);
    fg_ds_name_unread(cx, object, prefix, keys, N(keys));
    const FgJson *device = fg_ds_take(cx, object, prefix, "device", FG_JSON_IS_STRING);
    if (!device || strcmp(device->text, "none") == 0)
        return NULL;
    if (strcmp(device->text, "cpu") == 0)
        return device;
    fg_json_report(cx->json, device->loc, FG_D_BAD_VALUE,
                   "'%s.device' must be cpu or none: this offloads to host memory only", section);
    return NULL;
}

static void read_offload(FgDsCx *cx, const FgJson *zero)
{
    const FgJson *optimizer = offloaded(cx, zero, "offload_optimizer");
    const FgJson *parameters = offloaded(cx, zero, "offload_param");
    if (optimizer)
        set(cx, optimizer, ZERO "offload_optimizer.", "--offload",
            parameters ? "optimizer,parameters" : "optimizer");
    else if (parameters)
        set(cx, parameters, ZERO "offload_param.", "--offload", "parameters");
}

static void read_zero(FgDsCx *cx, const FgJson *root)
{
    static const Knob knobs[] = {
        {"stage3_prefetch_bucket_size", "--prefetch-bucket-size"},
        {"stage3_max_live_parameters", "--max-live-parameters"},
        {"stage3_max_reuse_distance", "--max-reuse-distance"},
        {"stage3_param_persistence_threshold", "--param-persistence-threshold"},
        {"reduce_bucket_size", "--reduce-bucket-size"},
    };
    static const char *const keys[] = {"stage",
                                       "offload_optimizer",
                                       "offload_param",
                                       "stage3_prefetch_bucket_size",
                                       "stage3_max_live_parameters",
                                       "stage3_max_reuse_distance",
                                       "stage3_param_persistence_threshold",
                                       "reduce_bucket_size"};
    const FgJson *zero = fg_json_want(cx->json, root, "zero_optimization", FG_JSON_IS_OBJECT);
    if (!zero) {
        if (!fg_json_get(root, "zero_optimization"))
            no_stage(cx, root, "zero_optimization");
        return;
    }
    const FgJson *stage = fg_json_want(cx->json, zero, "stage", FG_JSON_IS_INT);
    if (!fg_json_get(zero, "stage"))
        no_stage(cx, zero, ZERO "stage");
    if (stage && stage->i != 3)
        fg_json_report(cx->json, stage->loc, FG_D_BAD_VALUE,
                       "'stage' must be 3: parameters, gradients and optimizer state are sharded "
                       "here, always");
    for (uint32_t i = 0; i < N(knobs); i++)
        read_elements(cx, zero, &knobs[i]);
    read_offload(cx, zero);
    fg_ds_name_unread(cx, zero, ZERO, keys, N(keys));
}

/* ---- the file ---- */
static void read_root(FgDsCx *cx, const FgJson *root)
{
    static const char *const keys[] = {"train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "bf16",
                                       "bfloat16",
                                       "fp16",
                                       "communication_data_type",
                                       "zero_optimization",
                                       "optimizer",
                                       "scheduler"};
    read_count(cx, root, "train_batch_size", &cx->out->train_batch);
    read_count(cx, root, "train_micro_batch_size_per_gpu", &cx->out->batch);
    read_count(cx, root, "gradient_accumulation_steps", &cx->out->accumulate);
    read_clipping(cx, root);
    read_precision(cx, root);
    read_wire(cx, root);
    read_zero(cx, root);
    fg_ds_name_unread(cx, root, "", keys, N(keys));
    fg_ds_train_notes(cx, root);
    FgDiags *diags = cx->json->diags;
    if (cx->autos.text.len)
        fg_diag(diags, cx->autos.first, FG_D_DS_AUTO, "\"auto\" leaves the default: %s",
                fg_buf_text(&cx->autos.text));
    if (cx->unread.text.len)
        fg_diag(diags, cx->unread.first, FG_D_DS_UNREAD, "keys without a counterpart, left out: %s",
                fg_buf_text(&cx->unread.text));
}

bool fg_ds_config_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                        size_t len, FgDsConfig *out)
{
    FgArena *scratch = fg_arena_new();
    FgJsonCx json;
    FgDsCx cx = {.arena = arena, .json = &json, .out = out};
    *out = (FgDsConfig){0};
    fg_json_init(&json, scratch, diags);
    fg_buf_init(&cx.autos.text, scratch);
    fg_buf_init(&cx.unread.text, scratch);
    const FgJson *root = fg_json_parse(&json, name, text, len);
    if (root && fg_json_is(&json, root, FG_JSON_IS_OBJECT, "a DeepSpeed configuration"))
        read_root(&cx, root);
    fg_arena_free(scratch);
    return !json.failed;
}

bool fg_ds_config_load(FgArena *arena, FgDiags *diags, const char *path, FgDsConfig *out)
{
    char *text;
    size_t len;
    const char *error;
    if (fg_file_read(arena, path, &text, &len, &error))
        return fg_ds_config_parse(arena, diags, path, text, len, out);
    fg_diag(diags, FG_NOWHERE, FG_D_IO, "%s", error);
    return false;
}

/* ---- three sizes, two of them free ---- */
/* rows / (parts * ranks), or 0 when that is no whole number. */
static int64_t share(int64_t rows, int64_t parts, uint32_t ranks)
{
    int64_t all;
    return fg_mul_i64(parts, ranks, &all) && rows % all == 0 ? rows / all : 0;
}

bool fg_ds_config_batch(FgDiags *diags, const FgDsConfig *config, uint32_t ranks, int64_t batch,
                        int64_t accumulate, int64_t *out_batch, int64_t *out_accumulate)
{
    int64_t rows = config->train_batch.value;
    bool given = batch || accumulate;
    *out_batch = batch ? batch : config->batch.value;
    *out_accumulate = accumulate ? accumulate : config->accumulate.value;
    if (!rows)
        return true;
    if (*out_batch && *out_accumulate) {
        int64_t all = 0;
        if (fg_mul_i64(*out_batch, *out_accumulate, &all) && fg_mul_i64(all, ranks, &all) &&
            all == rows)
            return true;
        fg_diag(diags, config->train_batch.loc, given ? FG_D_DS_OVERRULED : FG_D_BAD_VALUE,
                "train_batch_size is %" PRId64 ", but a step has %" PRId64 " rows x %" PRId64
                " micro-steps x %u ranks",
                rows, *out_batch, *out_accumulate, ranks);
        return given;
    }
    if (*out_batch)
        *out_accumulate = share(rows, *out_batch, ranks);
    else
        *out_accumulate = *out_accumulate ? *out_accumulate : 1;
    if (!*out_batch)
        *out_batch = share(rows, *out_accumulate, ranks);
    if (*out_batch && *out_accumulate)
        return true;
    int64_t known = *out_batch ? *out_batch : *out_accumulate;
    fg_diag(diags, config->train_batch.loc, FG_D_BAD_VALUE,
            "train_batch_size %" PRId64 " is no multiple of %" PRId64 " %s x %u ranks", rows, known,
            *out_batch ? "rows" : "micro-steps", ranks);
    return false;
}
