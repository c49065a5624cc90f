/* Rotary position embedding: the table of angles and the rotation. */
#include <math.h>

#include "runtime/host/elements.h"
#include "runtime/host/kernels.h"

static double frequency(uint64_t i, uint64_t half, double theta, double factor, double low,
                        double high, double original)
{
    double f = pow(theta, -(double)i / (double)half);
    if (factor <= 0)
        return f;
    double wavelength = 2 * 3.14159265358979323846 / f;
    if (wavelength < original / high)
        return f;
    if (wavelength > original / low)
        return f / factor;
    double s = (original / wavelength - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

void fg_host_rope_table(FgRtCx *cx, uint64_t table, uint64_t seq, uint64_t half, double theta,
                        double factor, double low, double high, double original)
{
    float *cosine = fg_at(cx, table), *sine = cosine + seq * half;
    for (uint64_t i = 0; i < half; i++) {
        double f = frequency(i, half, theta, factor, low, high, original);
        for (uint64_t t = 0; t < seq; t++) {
            cosine[t * half + i] = (float)cos((double)t * f);
            sine[t * half + i] = (float)sin((double)t * f);
        }
    }
}

/* One head at one position; x and y from element `first`. */
static void rotate(const void *x, void *y, uint64_t dt, uint64_t first, uint64_t half,
                   const float *cosine, const float *sine, float sign)
{
    float sa[FG_CHUNK], sb[FG_CHUNK], ra[FG_CHUNK], rb[FG_CHUNK];
    for (uint64_t at = 0; at < half; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, half - at);
        const float *a = fg_load(x, dt, first + at, n, sa);
        const float *b = fg_load(x, dt, first + half + at, n, sb);
        for (uint64_t i = 0; i < n; i++) {
            float c = cosine[at + i], s = sign * sine[at + i];
            ra[i] = a[i] * c - b[i] * s;
            rb[i] = b[i] * c + a[i] * s;
        }
        fg_store(y, dt, first + at, n, ra);
        fg_store(y, dt, first + half + at, n, rb);
    }
}

void fg_host_rope(FgRtCx *cx, uint64_t x, uint64_t table, uint64_t y, uint64_t batch, uint64_t seq,
                  uint64_t heads, uint64_t dim, uint64_t half, uint64_t inverse, uint64_t dt)
{
    const float *cosine = fg_at(cx, table), *sine = cosine + seq * half;
    uint64_t size = fg_rt_dtype_bytes(dt), rest = dim - 2 * half;
    for (uint64_t at = 0; at < batch * seq * heads; at++) {
        uint64_t t = at / heads % seq, first = at * dim;
        rotate(fg_at(cx, x), fg_at(cx, y), dt, first, half, cosine + t * half, sine + t * half,
               inverse ? -1.0f : 1.0f);
        uint64_t tail = (first + 2 * half) * size;
        if (x != y && rest)
            memcpy(fg_at(cx, y + tail), fg_at(cx, x + tail), rest * size);
    }
}
