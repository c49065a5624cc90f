/* The pass manager: what every pass needs done around it, once for all. */
#include "passes/passes.h"

#include "base/file.h"
#include "base/map.h"

#include <string.h>
#include <time.h>

static const FgPassInfo pass_table[FG_N_PASSES] = {
#define FG_PASS(id, in, out, help) {#id, fg_pass_##id, in, out, help},
#include "passes/passes.def"
#undef FG_PASS
};

const FgPassInfo *fg_pass_info(FgPassId id)
{
    return &pass_table[id];
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const FgPassInfo *find_pass(const char *name)
{
    for (int id = 0; id < FG_N_PASSES; id++)
        if (strcmp(pass_table[id].name, name) == 0)
            return &pass_table[id];
    return NULL;
}

/* One step of a pipeline: "name" or "name{option}". */
typedef struct Step {
    const FgPassInfo *pass;
    const char *option;
    const char *rest; /* the pipeline from this step on, for the reproducer */
} Step;

typedef FG_VEC(Step) Steps;

static bool parse_pipeline(FgPassManager *pm, FgModule *module, const char *text, Steps *steps)
{
    const char *names[FG_N_PASSES];
    for (int id = 0; id < FG_N_PASSES; id++)
        names[id] = pass_table[id].name;
    while (*text) {
        const char *rest = text;
        size_t n = strcspn(text, ",{");
        const char *name = fg_arena_strndup(pm->arena, text, n), *option = "";
        text += n;
        if (*text == '{') {
            size_t len = strcspn(text, "}");
            option = fg_arena_strndup(pm->arena, text + 1, len - 1);
            text += len + (text[len] == '}');
        }
        if (*text == ',')
            text++;
        Step step = {find_pass(name), option, rest};
        if (!step.pass) {
            const char *near = fg_closest(name, names, FG_N_PASSES);
            fg_diag(module->diags, FG_NOWHERE, FG_D_UNKNOWN_PASS, "there is no pass '%s'%s%s%s",
                    name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
            return false;
        }
        fg_vec_push(pm->arena, steps, step);
    }
    return true;
}

static uint64_t text_hash(FgArena *arena, const FgModule *module)
{
    FgBuf buf;
    fg_buf_init(&buf, arena);
    fg_module_print(module, &buf);
    return fg_hash_bytes(buf.data, buf.len, 0);
}

static bool write_dump(FgPassManager *pm, const FgModule *module, const char *file,
                       const char *head)
{
    FgBuf buf;
    fg_buf_init(&buf, pm->arena);
    fg_buf_puts(&buf, head);
    fg_module_print(module, &buf);
    const char *error, *path = fg_arena_printf(pm->arena, "%s/%s", pm->dump_dir, file);
    bool ok = fg_file_write(pm->arena, path, buf.data, buf.len, &error);
    if (!ok)
        fg_diag(module->diags, FG_NOWHERE, FG_D_IO, "%s", error);
    return ok;
}

/* Whether a comma-separated list has a name. */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    while (*list) {
        size_t len = strcspn(list, ",");
        if (len == n && memcmp(list, name, n) == 0)
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

static bool is_dumped(const FgPassManager *pm, const FgPassInfo *pass, FgPassResult result)
{
    if (!pm->dump)
        return result == FG_PASS_CHANGED;
    return strcmp(pm->dump, "all") == 0 || is_listed(pm->dump, pass->name);
}

static void write_reproducer(FgPassManager *pm, const FgModule *before, const Step *step)
{
    const char *head =
        fg_arena_printf(pm->arena, "// before '%s' failed; run: fg-opt --passes=%s failed.fg\n",
                        step->pass->name, step->rest);
    write_dump(pm, before, "failed.fg", head);
}

static void add_time(FgPassManager *pm, const char *name, double ms)
{
    for (uint32_t i = 0; i < pm->times.len; i++)
        if (strcmp(pm->times.data[i].name, name) == 0) {
            pm->times.data[i].ms += ms;
            return;
        }
    fg_vec_push(pm->arena, &pm->times, ((FgPassTime){name, ms}));
}

static bool run_step(FgPassManager *pm, FgModule *module, const Step *step, FgArena *scratch)
{
    const FgPassInfo *pass = step->pass;
    if (module->level != pass->level_in) {
        fg_diag(module->diags, FG_NOWHERE, FG_D_WRONG_LEVEL,
                "pass '%s' works on level %s, the module is at level %s", pass->name,
                fg_level_name(pass->level_in), fg_level_name(module->level));
        return false;
    }
    uint64_t hash = pm->check_changed ? text_hash(scratch, module) : 0;
    FgPassCx cx = {module, scratch, pm->machine, pm->budget, step->option};
    double start = now_ms();
    FgPassResult result = pass->run(&cx);
    add_time(pm, pass->name, now_ms() - start);
    pm->n_run++;
    if (result == FG_PASS_FAILED)
        return false;
    if (pm->check_changed && (text_hash(scratch, module) != hash) != (result == FG_PASS_CHANGED))
        FG_BUG("pass '%s' reports %s, which is not true", pass->name,
               result == FG_PASS_CHANGED ? "changed" : "unchanged");
    if (module->level != pass->level_out)
        FG_BUG("pass '%s' left the module at level %s", pass->name, fg_level_name(module->level));
    if (pm->verify_each && !fg_module_verify(module)) {
        fg_diag(module->diags, FG_NOWHERE, FG_D_BAD_PASS, "pass '%s' made invalid IR", pass->name);
        return false;
    }
    return !pm->dump_dir || !is_dumped(pm, pass, result) ||
           write_dump(pm, module, fg_arena_printf(pm->arena, "%02u-%s.fg", pm->n_run, pass->name),
                      "");
}

bool fg_run_passes(FgPassManager *pm, FgModule *module, const char *pipeline)
{
    Steps steps = {0};
    if (!parse_pipeline(pm, module, pipeline, &steps))
        return false;
    FgArena *scratch = fg_arena_new();
    bool ok = true;
    for (uint32_t i = 0; i < steps.len && ok && !pm->stopped; i++) {
        FgArena *kept = pm->dump_dir ? fg_arena_new() : NULL;
        FgModule *before = kept ? fg_module_clone(module, kept) : NULL;
        ok = run_step(pm, module, &steps.data[i], scratch);
        if (!ok && before)
            write_reproducer(pm, before, &steps.data[i]);
        fg_arena_free(kept);
        fg_arena_reset(scratch);
        pm->stopped = pm->stop_after && strcmp(pm->stop_after, steps.data[i].pass->name) == 0;
    }
    fg_arena_free(scratch);
    return ok;
}
