/* Numbers of narrow formats: bfloat16 and IEEE half, to and from float, rounding to nearest even.
 */
#ifndef FG_RUNTIME_TRAINER_NUMBER_H
#define FG_RUNTIME_TRAINER_NUMBER_H

#include "runtime/fg_rt.h"

#include <stddef.h>
#include <stdint.h>

float fg_bf16_to_f32(uint16_t bits);
uint16_t fg_f32_to_bf16(float x);
float fg_f16_to_f32(uint16_t bits);

/* Bytes of one element. */
size_t fg_dtype_bytes(FgRtDtype dtype);

#endif
