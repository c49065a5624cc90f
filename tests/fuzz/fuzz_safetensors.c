/* Weight files: every tensor that the reader hands out lies inside the file. */
#include "fuzz.h"

#include "memory_file.h"
#include "runtime/trainer/safetensors.h"

#include <stdlib.h>

const char *const fuzz_seeds[] = {"tests/data/llama-odd/inputs.safetensors",
                                  "tests/data/gpt2/inputs.safetensors", NULL};
const char *const fuzz_words[] = {"\"dtype\"",
                                  "\"F32\"",
                                  "\"BF16\"",
                                  "\"shape\"",
                                  "\"data_offsets\"",
                                  "__metadata__",
                                  "[0,0]",
                                  "-1",
                                  "18446744073709551615",
                                  "null",
                                  "[]",
                                  "{}",
                                  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgFail fail = {NULL};
    FgSafetensors *file = fg_safetensors_open(memory_file(data, size), &fail);
    volatile unsigned sum = 0;
    if (!file && !fail.text)
        abort();
    for (uint32_t i = 0; file && i < fg_safetensors_count(file); i++) {
        const FgTensor *tensor = fg_safetensors_at(file, i);
        for (uint64_t k = 0; k < tensor->bytes; k++)
            sum += tensor->data[k];
        float some[4];
        if (fg_st_is_float(tensor->dtype))
            fg_tensor_floats(tensor, 0, tensor->elements < 4 ? tensor->elements : 4, some);
        free(fg_tensor_text(tensor));
        if (fg_safetensors_find(file, tensor->name) != tensor)
            abort();
    }
    if (file)
        fg_safetensors_close(file);
    fg_fail_clear(&fail);
    return 0;
}
