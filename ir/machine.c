/* Time of a transfer from a measured curve; a rank's share of host memory. */
#include "ir/machine.h"

uint64_t fg_machine_host_bytes(const FgMachine *machine)
{
    uint32_t on_node =
        machine->ranks < machine->ranks_per_node ? machine->ranks : machine->ranks_per_node;
    return on_node ? machine->host_node_bytes / on_node : 0;
}

double fg_curve_seconds(const FgCurve *curve, double bytes)
{
    if (!curve->len)
        return 0.0;
    const FgCurvePoint *points = curve->data;
    if (bytes <= points[0].bytes)
        return points[0].seconds;
    for (uint32_t i = 1; i < curve->len; i++) {
        if (bytes > points[i].bytes)
            continue;
        double width = points[i].bytes - points[i - 1].bytes;
        double part = width > 0.0 ? (bytes - points[i - 1].bytes) / width : 1.0;
        return points[i - 1].seconds + part * (points[i].seconds - points[i - 1].seconds);
    }
    const FgCurvePoint *last = &points[curve->len - 1];
    return last->bytes > 0.0 ? last->seconds * (bytes / last->bytes) : last->seconds;
}
