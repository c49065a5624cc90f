/* --ds-config: a DeepSpeed configuration's settings become flags, where no flag was given. What
 * loses against a flag is said; a value that the flag does not take is an error at the key. */
#include "frontend/ds_config.h"
#include "tools/command/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    bool numbers = *a && *b && !*end_a && !*end_b;
    return numbers ? x == y : strcmp(a, b) == 0;
}

/* --zero3 names all knobs of the baseline at once. */
static bool is_knob(FgFlagId id)
{
    return id == FG_FLAG_prefetch_bucket_size || id == FG_FLAG_max_live_parameters ||
           id == FG_FLAG_max_reuse_distance || id == FG_FLAG_param_persistence_threshold ||
           id == FG_FLAG_reduce_bucket_size;
}

static bool apply(FgSession *s, FgFlags *flags, const FgDsSetting *setting)
{
    FgFlagId id = fg_flags_find(flags, setting->flag), by = id;
    if (!s->flags->values[id] && is_knob(id) && s->flags->values[FG_FLAG_zero3])
        by = FG_FLAG_zero3;
    const char *given = s->flags->values[by];
    if (given && !(by == id && setting->value && same_value(given, setting->value)))
        fg_diag(s->diags, setting->loc, FG_D_DS_OVERRULED, "'%s' is not used: %s %s was given",
                setting->key, fg_flag_name(by), given);
    if (given || !setting->value)
        return true;
    const char *wanted = fg_flags_put(s->arena, flags, id, setting->value);
    if (wanted)
        fg_diag(s->diags, setting->loc, FG_D_BAD_VALUE, "'%s' asks for %s %s, but %s takes %s",
                setting->key, setting->flag, setting->value, setting->flag, wanted);
    return !wanted;
}

static bool apply_count(FgSession *s, FgFlags *flags, const char *key, const FgDsCount *from,
                        const char *flag, int64_t n)
{
    if (!n)
        return true;
    const char *value = fg_arena_printf(s->arena, "%" PRId64, from->value ? from->value : n);
    FgDsSetting setting = {key, from->loc, flag, value};
    return apply(s, flags, &setting);
}

bool fg_session_ds_config(FgSession *s)
{
    FgDsConfig config;
    FgFlags *flags = FG_NEW(s->arena, FgFlags);
    int64_t batch, accumulate;
    *flags = *s->flags;
    if (!fg_ds_config_load(s->arena, s->diags, flags->values[FG_FLAG_ds_config], &config))
        return false;
    bool ok = fg_ds_config_batch(s->diags, &config, s->machine.ranks,
                                 fg_flags_count(flags, FG_FLAG_batch, 0),
                                 fg_flags_count(flags, FG_FLAG_accumulate, 0), &batch, &accumulate);
    ok = apply_count(s, flags, "train_micro_batch_size_per_gpu", &config.batch, "--batch", batch) &&
         ok;
    ok = apply_count(s, flags, "gradient_accumulation_steps", &config.accumulate, "--accumulate",
                     accumulate) &&
         ok;
    for (uint32_t i = 0; i < config.settings.len; i++)
        ok = apply(s, flags, &config.settings.data[i]) && ok;
    s->flags = flags;
    return ok;
}
