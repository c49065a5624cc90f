/* Calls that move elements without changing them, and the reading of layouts. All copy bytes: no
 * rounding happens. */
#include <inttypes.h>

#include "runtime/host/kernels.h"
#include "runtime/host/layout.h"

bool fg_layout_read(FgRtCx *cx, uint64_t index, uint64_t operands, FgLayout *out)
{
    const FgRtProgram *program = cx->program;
    if (index < program->n_layouts) {
        *out = (FgLayout){(uint64_t)program->layouts[index], program->layouts + index + 1};
        if (out->rank * (operands + 1) <= program->n_layouts - index - 1)
            return true;
    }
    fg_rt_raise(cx, "layout %" PRIu64 " lies outside the program's table", index);
    return false;
}

const float *fg_load_strided(const void *base, uint64_t dt, uint64_t first, uint64_t stride,
                             uint64_t n, float *scratch)
{
    if (stride == 1)
        return fg_load(base, dt, first, n, scratch);
    if (stride == 0) {
        float value = fg_load_one(base, dt, first);
        for (uint64_t i = 0; i < n; i++)
            scratch[i] = value;
    } else {
        for (uint64_t i = 0; i < n; i++)
            scratch[i] = fg_load_one(base, dt, first + i * stride);
    }
    return scratch;
}

/* Copies one line of n elements of `size` bytes, the source's `stride` elements apart. */
static void copy_line(const uint8_t *from, uint64_t stride, uint8_t *to, uint64_t n, uint64_t size)
{
    if (stride == 1) {
        memcpy(to, from, n * size);
        return;
    }
    switch (size) {
    case 2:
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i] = ((const uint16_t *)(const void *)from)[i * stride];
        break;
    case 4:
        for (uint64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[i * stride];
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            memcpy(to + i * size, from + i * stride * size, size);
        break;
    }
}

static void copy_dims(const FgLayout *layout, uint64_t dim, const uint8_t *from, uint8_t **to,
                      uint64_t size)
{
    uint64_t n = fg_layout_dim(layout, dim), stride = fg_layout_stride(layout, 0, dim);
    if (dim + 1 == layout->rank) {
        copy_line(from, stride, *to, n, size);
        *to += n * size;
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        copy_dims(layout, dim + 1, from + i * stride * size, to, size);
}

void fg_host_copy_strided(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t n_x, uint64_t n,
                          uint64_t layout, uint64_t dt)
{
    (void)n_x; /* the effects need it */
    FgLayout strides;
    if (n == 0 || !fg_layout_read(cx, layout, 1, &strides))
        return;
    uint8_t *to = fg_at(cx, y);
    uint64_t size = fg_rt_dtype_bytes(dt);
    if (strides.rank == 0)
        memcpy(to, fg_at(cx, x), size);
    else
        copy_dims(&strides, 0, fg_at(cx, x), &to, size);
}

void fg_host_slice(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t outer, uint64_t dim, uint64_t inner,
                   uint64_t start, uint64_t count, uint64_t dt)
{
    uint64_t size = fg_rt_dtype_bytes(dt) * inner;
    for (uint64_t i = 0; i < outer; i++)
        memcpy(fg_at(cx, y + i * count * size), fg_at(cx, x + (i * dim + start) * size),
               count * size);
}

void fg_host_slice_back(FgRtCx *cx, uint64_t dy, uint64_t dx, uint64_t outer, uint64_t dim,
                        uint64_t inner, uint64_t start, uint64_t count, uint64_t dt)
{
    uint64_t size = fg_rt_dtype_bytes(dt) * inner;
    for (uint64_t i = 0; i < outer; i++) {
        uint8_t *line = fg_at(cx, dx + i * dim * size);
        memset(line, 0, start * size);
        memcpy(line + start * size, fg_at(cx, dy + i * count * size), count * size);
        memset(line + (start + count) * size, 0, (dim - start - count) * size);
    }
}

void fg_host_concat(FgRtCx *cx, uint64_t a, uint64_t b, uint64_t y, uint64_t outer, uint64_t dim_a,
                    uint64_t dim_b, uint64_t inner, uint64_t dt)
{
    uint64_t size_a = fg_rt_dtype_bytes(dt) * inner * dim_a,
             size_b = fg_rt_dtype_bytes(dt) * inner * dim_b;
    for (uint64_t i = 0; i < outer; i++) {
        uint8_t *line = fg_at(cx, y + i * (size_a + size_b));
        memcpy(line, fg_at(cx, a + i * size_a), size_a);
        memcpy(line + size_a, fg_at(cx, b + i * size_b), size_b);
    }
}
