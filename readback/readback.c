/* Reading a program back: parse, tables, then for every rank the trace and its proof, then the
 * comparison with the plan. The first step that fails ends it: what follows would only guess. */
#include "readback/readback.h"

#include "readback/internal.h"

/* One rank's schedule, proved. *out_differs: other ranks may have another one. */
static bool prove(FgArena *arena, const FgRbSource *source, const FgRbTables *tables, uint64_t rank,
                  const FgModule *plan, FgReadback *out, bool *out_differs)
{
    FgRbSchedule schedule;
    if (!fg_rb_trace(arena, source, tables, rank, &schedule))
        return false;
    *out_differs = schedule.uses_rank;
    uint64_t budget = tables->memory_bytes - tables->reserved_bytes;
    out->calls = schedule.trace.nodes.len;
    return fg_check_trace(arena, &schedule.trace, budget, &out->proof) &&
           (!plan || fg_rb_compare(arena, source, tables, &schedule, plan));
}

bool fg_readback(FgArena *arena, FgDiags *diags, const FgReadbackRequest *request, FgReadback *out)
{
    FgRbSource source;
    FgRbTables tables;
    bool differs = false;
    *out = (FgReadback){0};
    if (!fg_rb_parse(arena, diags, request, &source) || !fg_rb_tables(&source, &tables))
        return false;
    out->functions = source.funcs.len;
    out->fingerprint = tables.fingerprint;
    out->state_bytes = tables.state_bytes;
    out->arena_bytes = tables.arena_bytes;
    out->reserved_bytes = tables.reserved_bytes;
    out->memory_bytes = tables.memory_bytes;
    out->ranks = (uint32_t)tables.ranks;
    if (!prove(arena, &source, &tables, 0, request->plan, out, &differs))
        return false;
    for (uint64_t rank = 1; differs && rank < tables.ranks; rank++) {
        FgArena *scratch = fg_arena_new();
        bool ok = prove(scratch, &source, &tables, rank, request->plan, out, &differs);
        fg_arena_free(scratch);
        if (!ok)
            return false;
    }
    return true;
}
