/* Faults of streams and events: every wait of a program is needed, so that each of these is one. */
#include "mutants_internal.h"

static const char *const names[FG_N_STREAMS] = {"FG_COMPUTE", "FG_GATHER", "FG_REDUCE",
                                                "FG_COPY",    "FG_STASH",  "FG_FETCH"};

/* ---- streams and events: every wait is needed, so each of these is a fault ---- */

/* The wait goes, and its record too where no other one waits for it. */
void drop_wait(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint64_t event = line_arg(line_at(cx, i), "event");
        uint32_t record = event_line(cx, "record", event, i, -1);
        uint32_t other = event_line(cx, "wait", event, i + 1, 1);
        uint32_t again = event_line(cx, "record", event, i + 1, 1);
        uint32_t before = event_line(cx, "wait", event, i - 1, -1);
        bool alone = (other == NO_LINE || (again != NO_LINE && again < other)) &&
                     (before == NO_LINE || before < record);
        Mutant mutant = begin(cx, i);
        edit(&mutant, i, "");
        if (alone && record != NO_LINE)
            edit(&mutant, record, "");
        finish(cx, &mutant);
    }
}

void drop_record(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "record"))
            try_edit(cx, i, "");
}

/* The wrong stream waits: then the right one does not. */
void wait_elsewhere(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "wait"))
            for (uint64_t s = 0; s < FG_N_STREAMS; s++)
                if (s != line_arg(line_at(cx, i), "stream"))
                    try_edit(cx, i, with_arg(cx, i, 1, names[s]));
}

/* The event fires before the call that it stands for. */
void record_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "record"))
            continue;
        uint32_t call = next_work(cx, i, -1, line_arg(line_at(cx, i), "stream"));
        if (call != NO_LINE)
            try_move(cx, i, call, false);
    }
}

/* The call that needs it is issued before the wait. */
void wait_late(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint32_t call = next_work(cx, i, 1, line_arg(line_at(cx, i), "stream"));
        if (call != NO_LINE)
            try_move(cx, i, call, true);
    }
}

/* An earlier event says less than the one that is needed. */
void wait_other(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "wait") && line_arg(line_at(cx, i), "event") > 0)
            try_arg(cx, i, "event", line_arg(line_at(cx, i), "event") - 1);
}

/* The event is recorded after the wait alone: by the step before, across the cut, where all events
 * start anew. */
void wait_across(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint32_t record = event_line(cx, "record", line_arg(line_at(cx, i), "event"), i, -1);
        if (record != NO_LINE)
            try_move(cx, record, i, true);
    }
}

void drop_join(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "join"))
            try_edit(cx, i, "");
}

/* On another stream, a call is ordered with other calls than it needs. Not tried: calls without
 * work (releases), and where the stream of a collective is free to choose. */
void other_stream(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        if (is_work(line) && !line_is(line, "release"))
            try_edit(cx, i,
                     with_arg(cx, i, 2, names[(line_arg(line, "stream") + 1) % FG_N_STREAMS]));
    }
}
