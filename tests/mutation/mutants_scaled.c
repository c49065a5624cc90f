/* Faults of a scaled loss: the call that brings the scale in, and the one that takes it out and
 * decides whether the step updates anything. */
#include "mutants_internal.h"

void drop_scale(const Cx *cx)
{
    try_each(cx, "loss_scale", false);
}

void double_scale(const Cx *cx)
{
    try_each(cx, "loss_scale", true);
}

/* Behind the first call that reads the loss's factor. */
void scale_late(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "loss_scale"))
            continue;
        for (uint32_t k = i + 1; k < n_lines(cx); k++) {
            if (same_body(cx, i, k) && line_is(line_at(cx, k), "cross_entropy_back")) {
                try_move(cx, i, k, true);
                break;
            }
        }
    }
}

void drop_decision(const Cx *cx)
{
    try_each(cx, "scale_step", false);
}

void double_decision(const Cx *cx)
{
    try_each(cx, "scale_step", true);
}

/* Before a sum over ranks that it reads: a rank would decide by itself. */
void decide_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = i; line_is(line_at(cx, i), "scale_step") && k-- > 0;)
            if (same_body(cx, i, k) && line_is(line_at(cx, k), "all_reduce"))
                try_move(cx, i, k, false);
}
