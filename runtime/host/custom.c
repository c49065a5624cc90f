/* Calls of the user's own functions, and of the program's own, of fused chains. What the program
 * states of them was proved when it was compiled; a program that was not is refused here rather
 * than obeyed. */
#include "runtime/host/elements.h"
#include "runtime/host/kernels.h"

static bool inside(const FgRtCx *cx, const FgRtOperand *operand)
{
    uint64_t size = fg_rt_dtype_bytes(operand->dtype);
    return size && operand->offset <= cx->bytes &&
           operand->elements <= (cx->bytes - operand->offset) / size;
}

void fg_host_custom(FgRtCx *cx, uint64_t function, uint64_t first, uint64_t count)
{
    const FgRtProgram *program = cx->program;
    if (function >= program->n_customs || first > program->n_operands ||
        count > program->n_operands - first) {
        fg_rt_raise(cx, "the function or its operands are none of the program's tables");
        return;
    }
    const FgRtCustom *custom = &program->customs[function];
    if (count != (uint64_t)custom->n_inputs + custom->n_outputs) {
        fg_rt_raise(cx, "%s does not take so many operands", custom->name);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!inside(cx, &program->operands[first + i])) {
            fg_rt_raise(cx, "operand %u of %s lies outside the memory", (unsigned)i, custom->name);
            return;
        }
    }
    const FgCustom call = {.operands = program->operands + first,
                           .n_operands = (uint32_t)count,
                           .dims = program->dims,
                           .memory = cx->memory};
    custom->call(&call);
}

void fg_host_fused(FgRtCx *cx, uint64_t function, uint64_t first, uint64_t count, uint64_t n)
{
    (void)n; /* that of the result's row: the effects ask for it */
    fg_host_custom(cx, function, first, count);
}
