/* The kernels: one fg_host_<name> for each row of runtime/fg_rt_calls.def, with its arguments. They
 * run on the calling thread, to the end. Their results depend on their operands alone: not on
 * addresses, on what the result held before (unless they accumulate), on the size of the workspace,
 * or on other calls. */
#ifndef FG_RUNTIME_HOST_KERNELS_H
#define FG_RUNTIME_HOST_KERNELS_H

#include "runtime/host/cx.h"

#define FG_RT_CALL(name, effects, params, args)                                                    \
    void fg_host_##name(FgRtCx *cx, FG_RT_UNPAREN params);
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs)                                  \
    void fg_host_##name(FgRtCx *cx, FG_RT_UNPAREN params, FG_RT_UNPAREN fparams);
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

#endif
