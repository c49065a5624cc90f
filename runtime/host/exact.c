/* A fixed-point accumulator wide enough for every f32 squared: 2^-298 to 2^256, plus room for
 * carries.
 *
 * A square m^2 2^2e has 48 bits; it is cut at multiples of 32 bits and added to three limbs. An
 * addition changes a limb by less than 2^33, so carries need only be moved up once in 2^29 values.
 * The last limb is far above every possible sum and counts values that are not finite. Sums of
 * canonical limbs over ranks cannot overflow below 2^31 ranks; and since the canonical form of a
 * value is unique, so is the rounded result, whatever the order of additions. */
#include "runtime/host/exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/fg_rt.h"

#define BITS 32
#define ZERO_BIT 320 /* the bit of 2^0 */
#define MASK 0xffffffffu
#define FLAG (FG_RT_NORM_LIMBS - 1)

static void carry(int64_t *limbs)
{
    for (int i = 0; i + 1 < FLAG; i++) {
        limbs[i + 1] += limbs[i] >> BITS;
        limbs[i] &= MASK;
    }
}

static void add_square(int64_t *limbs, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t exponent = bits >> 23 & 255u;
    uint64_t mantissa = (bits & 0x7fffffu) | (exponent ? 0x800000u : 0u);
    if (exponent == 255) {
        limbs[FLAG]++;
        return;
    }
    /* value = mantissa * 2^(max(exponent, 1) - 150) */
    uint32_t at = ZERO_BIT + 2 * (exponent ? exponent : 1) - 300;
    uint32_t limb = at / BITS, shift = at % BITS;
    uint64_t square = mantissa * mantissa;
    uint64_t low = (square & MASK) << shift, high = (square >> BITS) << shift;
    limbs[limb] += (int64_t)(low & MASK);
    limbs[limb + 1] += (int64_t)((low >> BITS) + (high & MASK));
    limbs[limb + 2] += (int64_t)(high >> BITS);
}

void fg_exact_add_squares(int64_t *limbs, const float *values, uint64_t n)
{
    const uint64_t batch = (uint64_t)1 << 28;
    for (uint64_t at = 0; at < n; at += batch) {
        for (uint64_t i = at; i < n && i < at + batch; i++)
            add_square(limbs, values[i]);
        carry(limbs);
    }
}

double fg_exact_value(const int64_t *from)
{
    int64_t limbs[FG_RT_NORM_LIMBS];
    memcpy(limbs, from, sizeof limbs);
    if (limbs[FLAG] != 0)
        return (double)NAN;
    carry(limbs);
    int top = FLAG - 1;
    while (top > 0 && limbs[top] == 0)
        top--;
    /* The leading 64 bits, the rest gathered into the lowest of them: enough for one correct
     * rounding. */
    uint64_t head = (uint64_t)limbs[top];
    int place = BITS * top - ZERO_BIT, next = top - 1;
    bool rest = false;
    if (head == 0)
        return 0;
    int room = 0;
    while (!(head << room >> 63))
        room++;
    head <<= room;
    place -= room;
    for (; next >= 0; next--) {
        uint64_t limb = (uint64_t)limbs[next];
        int shift = BITS * next - ZERO_BIT - place;
        if (shift >= 0) {
            head |= limb << shift;
        } else {
            uint64_t kept = -shift < 64 ? limb >> -shift : 0;
            head |= kept;
            rest |= -shift < 64 ? (kept << -shift) != limb : limb != 0;
        }
    }
    return ldexp((double)(head | (rest ? 1u : 0u)), place);
}
