/* Calls of the user's own functions, and of the program's own, of fused chains: they launch on the
 * stream that they are handed, and must not synchronise, allocate or read the device, since steps
 * are captured into graphs. */
#include "runtime/cuda/core.h"

static uint64_t element_bytes(uint32_t dtype)
{
    return dtype == FG_RT_BF16 || dtype == FG_RT_F16  ? 2
           : dtype == FG_RT_F32 || dtype == FG_RT_I32 ? 4
           : dtype == FG_RT_F64 || dtype == FG_RT_I64 ? 8
                                                      : 0;
}

static bool inside(const FgRtCx *cx, const FgRtOperand *operand)
{
    uint64_t bytes = cx->program->state_bytes + cx->program->arena_bytes;
    uint64_t size = element_bytes(operand->dtype);
    return size && operand->offset <= bytes &&
           operand->elements <= (bytes - operand->offset) / size;
}

void fg_cuda_custom(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t function,
                    uint64_t first, uint64_t count)
{
    const FgRtProgram *program = cx->program;
    (void)node;
    if (function >= program->n_customs || first > program->n_operands ||
        count > program->n_operands - first) {
        fg_cuda_raise(cx, "the function or its operands are none of the program's tables");
        return;
    }
    const FgRtCustom *custom = &program->customs[function];
    bool fits = count == (uint64_t)custom->n_inputs + custom->n_outputs;
    for (uint64_t i = 0; fits && i < count; i++)
        fits = inside(cx, &program->operands[first + i]);
    if (!fits) {
        fg_cuda_raise(cx, "the operands of %s are not those that it takes", custom->name);
        return;
    }
    const FgCustom call = {.operands = program->operands + first,
                           .n_operands = (uint32_t)count,
                           .dims = program->dims,
                           .memory = cx->memory,
                           .stream = stream};
    custom->call(&call);
    fg_cuda_check(cx, cudaGetLastError(), custom->name);
}

void fg_cuda_fused(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t function,
                   uint64_t first, uint64_t count, uint64_t n)
{
    (void)n; /* that of the result's row */
    fg_cuda_custom(cx, stream, node, function, first, count);
}
