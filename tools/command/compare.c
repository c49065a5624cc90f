/* Figures and aligned functions of two schedules. */
#include "tools/command/compare.h"

#include <string.h>

static void figure(FgArena *arena, FgComparison *c, FgFigure f)
{
    if (f.left != 0 || f.right != 0 || !f.part)
        fg_vec_push(arena, &c->figures, f);
}

static double count_waits(const FgModule *m)
{
    double n = 0;
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++)
            n += m->nodes.data[m->funcs.data[f].order.data[i]].n_waits;
    }
    return n;
}

static void add_times(FgArena *arena, FgComparison *c)
{
    const FgSim *l = &c->left.sim, *r = &c->right.sim;
    figure(arena, c, (FgFigure){"step_us", "step", FG_FIGURE_US, false, l->step_us, r->step_us});
    figure(arena, c,
           (FgFigure){"compute_us", "compute alone", FG_FIGURE_US, true, l->compute_us,
                      r->compute_us});
    figure(arena, c,
           (FgFigure){"slowed_us", "slowed by overlap", FG_FIGURE_US, true, l->slowed_us,
                      r->slowed_us});
    figure(arena, c,
           (FgFigure){"exposed_gather_us", "exposed gather", FG_FIGURE_US, true,
                      l->exposed_gather_us, r->exposed_gather_us});
    figure(arena, c,
           (FgFigure){"exposed_reduce_us", "exposed reduce", FG_FIGURE_US, true,
                      l->exposed_reduce_us, r->exposed_reduce_us});
    if (l->exposed_host_us > 0 || r->exposed_host_us > 0)
        figure(arena, c,
               (FgFigure){"exposed_host_us", "exposed host copies", FG_FIGURE_US, true,
                          l->exposed_host_us, r->exposed_host_us});
    figure(arena, c,
           (FgFigure){"bound_us", "lower bound", FG_FIGURE_US, false, l->bound_us, r->bound_us});
}

static void add_memory(FgArena *arena, FgComparison *c)
{
    const FgLedger *l = &c->left.ledger, *r = &c->right.ledger;
    figure(arena, c,
           (FgFigure){"peak_bytes", "peak", FG_FIGURE_BYTES, false, (double)l->peak_bytes,
                      (double)r->peak_bytes});
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++) {
        const char *name = fg_mem_class_name((FgMemClass)i);
        figure(arena, c,
               (FgFigure){name, name, FG_FIGURE_BYTES, true, (double)l->by_class[i],
                          (double)r->by_class[i]});
    }
    figure(arena, c,
           (FgFigure){"unused", "unused", FG_FIGURE_BYTES, true, (double)l->unused_bytes,
                      (double)r->unused_bytes});
    figure(arena, c,
           (FgFigure){"arena_bytes", "arena", FG_FIGURE_BYTES, false, (double)l->arena_bytes,
                      (double)r->arena_bytes});
    if (l->host_bytes || r->host_bytes)
        figure(arena, c,
               (FgFigure){"host_bytes", "host memory", FG_FIGURE_BYTES, false,
                          (double)l->host_bytes, (double)r->host_bytes});
}

static void add_counts(FgArena *arena, FgComparison *c)
{
    const FgSim *l = &c->left.sim, *r = &c->right.sim;
    /* The buffers that gathers fill, whole: whatever share of them a rank had before. */
    figure(arena, c,
           (FgFigure){"gathers", "gathers", FG_FIGURE_COUNT, false, l->gathers, r->gathers});
    figure(arena, c,
           (FgFigure){"gather_bytes", "whole buffers", FG_FIGURE_BYTES, true,
                      (double)l->gather_bytes, (double)r->gather_bytes});
    figure(arena, c,
           (FgFigure){"waits", "waits", FG_FIGURE_COUNT, false, count_waits(c->left.module),
                      count_waits(c->right.module)});
}

static const FgFunc *find_func(const FgModule *m, const char *name)
{
    for (uint32_t i = 0; i < m->funcs.len; i++) {
        if (strcmp(m->funcs.data[i].name, name) == 0)
            return &m->funcs.data[i];
    }
    return NULL;
}

static void add_func(FgArena *arena, FgComparison *c, const char *name)
{
    const FgFunc *left = find_func(c->left.module, name), *right = find_func(c->right.module, name);
    FgFuncDiff f = {.name = name};
    if (left)
        f.left = fg_schedule_lines(arena, c->left.module, left);
    if (right)
        f.right = fg_schedule_lines(arena, c->right.module, right);
    f.changes = fg_align(arena, &f.left, &f.right);
    f.differs =
        f.changes.len > 1 || (f.changes.len == 1 && f.changes.data[0].kind != FG_CHANGE_EQUAL);
    c->differs = c->differs || f.differs;
    fg_vec_push(arena, &c->funcs, f);
}

void fg_compare(FgArena *arena, FgComparison *c)
{
    if (c->left.scheduled && c->right.scheduled) {
        add_times(arena, c);
        add_memory(arena, c);
        add_counts(arena, c);
    }
    /* Equal orders may still lie at other addresses. */
    c->differs = fg_module_fingerprint(c->left.module) != fg_module_fingerprint(c->right.module);
    for (uint32_t i = 0; i < c->figures.len; i++)
        c->differs = c->differs || c->figures.data[i].left != c->figures.data[i].right;
    for (uint32_t i = 0; i < c->left.module->funcs.len; i++)
        add_func(arena, c, c->left.module->funcs.data[i].name);
    for (uint32_t i = 0; i < c->right.module->funcs.len; i++) {
        if (!find_func(c->left.module, c->right.module->funcs.data[i].name))
            add_func(arena, c, c->right.module->funcs.data[i].name);
    }
}
