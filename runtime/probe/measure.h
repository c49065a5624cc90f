/* All that a probe measures, in its order: each figure is printed as soon as it is known. */
#ifndef FG_RUNTIME_PROBE_MEASURE_H
#define FG_RUNTIME_PROBE_MEASURE_H

#include "runtime/probe/figures.h"
#include "runtime/probe/rig.h"

/* Everything but name and ranks. False: the group has failed. */
bool fg_probe_measure(FgProbeRig *rig, FgProbeFigures *out);

#endif
