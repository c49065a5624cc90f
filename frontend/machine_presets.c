/* The machines known by name, written as machine files. Rates are sustained ones;
 * docs/machine-format.md says where each figure comes from and which are estimates. */
#include "frontend/machine.h"

#include <string.h>

typedef struct Preset {
    const char *name, *text;
} Preset;

/* Pinned host memory over PCIe 5.0 x16 (55 GB/s) and 3.0 x16 (12 GB/s): each direction has the link
 * to itself, but for what one takes of the other. */
#define PCIE5                                                                                      \
    " \"stash\": {\"latency\": 1e-5, \"rates\": [[1e6, 3e10], [3.2e7, 5.2e10]]},\n"                \
    " \"fetch\": {\"latency\": 1e-5, \"rates\": [[1e6, 3e10], [3.2e7, 5.2e10]]},\n"

/* Ranks are threads that share the memory and the cores: nothing runs beside anything else, so
 * engines that overlap take turns (one half each). */
#define HOST                                                                                       \
    "{\"foregather_machine\": 1, \"name\": \"host\", \"ranks\": 2,\n"                              \
    " \"memory\": \"16 GiB\", \"reserved\": 0, \"reserved_parts\": 0,\n"                           \
    " \"workspace\": \"4 MiB\",\n"                                                                 \
    " \"matmul\": {\"f32\": 3e10, \"bf16\": 2e10, \"f16\": 2e10},\n"                               \
    " \"vector\": 2e9, \"memory_rate\": 8e9, \"launch\": 1e-6,\n"                                  \
    " \"host_memory\": \"32 GiB\",\n"                                                              \
    " \"stash\": {\"latency\": 1e-6, \"rates\": [[1e6, 4e9]]},\n"                                  \
    " \"fetch\": {\"latency\": 1e-6, \"rates\": [[1e6, 4e9]]},\n"                                  \
    " \"gather\": {\"latency\": 2e-5, \"bus_rates\": [[1e6, 2e9]]},\n"                             \
    " \"reduce\": {\"latency\": 2e-5, \"bus_rates\": [[1e6, 1e9]]},\n"                             \
    " \"all_to_all\": {\"latency\": 2e-5, \"bus_rates\": [[1e6, 1e9]]},\n"                         \
    " \"beside\": {\"compute_gather\": 0.5, \"compute_reduce\": 0.5, \"gather_compute\": 0.5,\n"   \
    "            \"reduce_compute\": 0.5, \"gather_reduce\": 0.5, \"reduce_gather\": 0.5,\n"       \
    "            \"compute_host\": 0.5, \"host_compute\": 0.5, \"link_host\": 0.5,\n"              \
    "            \"host_link\": 0.5, \"stash_fetch\": 0.5, \"fetch_stash\": 0.5}}\n"

#define T4_2                                                                                       \
    "{\"foregather_machine\": 1, \"name\": \"2xT4\", \"ranks\": 2,\n"                              \
    " \"memory\": \"14.57 GiB\", \"reserved\": \"0.3 GiB\", \"reserved_estimated\": true,\n"       \
    " \"workspace\": \"32 MiB\",\n"                                                                \
    " \"matmul\": {\"f32\": 6e12, \"bf16\": 6e12, \"f16\": 4e13},\n"                               \
    " \"vector\": 4e12, \"memory_rate\": 2.4e11, \"launch\": 5e-6,\n"                              \
    " \"host_memory\": \"64 GB\",\n"                                                               \
    " \"stash\": {\"latency\": 1e-5, \"rates\": [[1e6, 9e9], [3.2e7, 1.2e10]]},\n"                 \
    " \"fetch\": {\"latency\": 1e-5, \"rates\": [[1e6, 9e9], [3.2e7, 1.2e10]]},\n"                 \
    " \"gather\": {\"latency\": 2e-5, \"bus_rates\": [[1e6, 5e9], [8e6, 9e9], [3.2e7, 1e10]]},\n"  \
    " \"reduce\": {\"latency\": 2e-5, \"bus_rates\": [[1e6, 5e9], [8e6, 9e9], [3.2e7, 1e10]]},\n"  \
    " \"beside\": {\"compute_gather\": 0.9, \"compute_reduce\": 0.85, \"gather_compute\": 0.9,\n"  \
    "            \"reduce_compute\": 0.85, \"gather_reduce\": 0.5, \"reduce_gather\": 0.5,\n"      \
    "            \"compute_parts\": 0.85, \"parts_compute\": 0.85, \"link_host\": 0.6, "           \
    "\"host_link\": 0.6,\n"                                                                        \
    "            \"stash_fetch\": 0.9, \"fetch_stash\": 0.9}}\n"

/* Of one H200, by `foregather probe`. */
#define H200                                                                                       \
    " \"memory\": \"139 GiB\", \"reserved\": 1780000000, \"reserved_parts\": 247463936,\n"         \
    " \"workspace\": \"144 MiB\",\n"                                                               \
    " \"matmul\": {\"f32\": 5.09e13, \"bf16\": 6.6e14, \"f16\": 6.6e14},\n"                        \
    " \"attention\": [[64, 3.7e14, 2.96e14], [128, 5.13e14, 4.2e14]],\n"                           \
    " \"vector\": 3.26e13, \"memory_rate\": 3.0e12, \"launch\": 1.1e-6,\n"                         \
    " \"stash\": {\"latency\": 2.1e-6, \"rates\": [[1e6, 4.8e10], [1.6e7, 5.5e10]]},\n"            \
    " \"fetch\": {\"latency\": 2.7e-6, \"rates\": [[1e6, 4.7e10], [1.6e7, 5.4e10]]},\n"

/* Beside each other on one H200, but for what the collectives of two or four ranks are. */
#define H200_UPDATE                                                                                \
    "            \"compute_update\": 0.75, \"update_compute\": 0.45, \"gather_update\": 0.8,\n"    \
    "            \"update_gather\": 0.79, \"reduce_update\": 0.63, \"update_reduce\": 0.84,\n"     \
    "            \"compute_host\": 0.97, \"link_host\": 0.95, \"stash_fetch\": 0.88,\n"            \
    "            \"fetch_stash\": 0.56},\n"

/* Light work: fitted to steps that were measured (docs/machine-format.md). */
#define H200_LIGHT                                                                                 \
    " \"light\": {\"flops\": 5e10, \"bf16\": 4.65e14, \"f16\": 4.65e14,\n"                         \
    "           \"compute_gather\": 0.88, \"gather_compute\": 0.95, \"compute_reduce\": 0.82,\n"   \
    "           \"reduce_compute\": 0.83, \"compute_update\": 0.53, \"update_compute\": 0.73,\n"

#define H200_2                                                                                     \
    "{\"foregather_machine\": 1, \"name\": \"2xH200\", \"ranks\": 2,\n"                            \
    " \"host_memory\": \"384 GB\",\n" H200                                                         \
    " \"gather\": {\"latency\": 2.5e-5, \"bus_rates\": [[1e6, 1.95e10], [4.2e6, 6.54e10],\n"       \
    "            [1.68e7, 1.61e11], [6.7e7, 2.5e11], [2.68e8, 3.07e11], [1.07e9, 3.0e11]]},\n"     \
    " \"reduce\": {\"latency\": 6e-6, \"bus_rates\": [[1e6, 5.32e10], [4.2e6, 9.35e10],\n"         \
    "            [1.68e7, 1.7e11], [6.7e7, 2.03e11], [2.68e8, 2.3e11], [1.07e9, 2.7e11]]},\n"      \
    " \"all_to_all\": {\"latency\": 2.6e-5, \"bus_rates\": [[1e6, 1.9e10], [4.2e6, 6.41e10],\n"    \
    "            [1.68e7, 1.63e11], [6.7e7, 2.51e11], [2.68e8, 3.08e11], [1.07e9, 3.0e11]]},\n"    \
    " \"beside\": {\"compute_parts\": 0.98, \"parts_compute\": 0.35, \"update_parts\": 0.8,\n"     \
    "            \"parts_update\": 0.8, \"gather_parts\": 0.56, \"parts_gather\": 0.56,\n"         \
    "            \"compute_gather\": 0.96, \"compute_reduce\": 0.86, \"gather_compute\": 0.35,\n"  \
    "            \"reduce_compute\": 0.43, \"gather_reduce\": 0.73, \"reduce_gather\": "           \
    "0.63,\n" H200_UPDATE H200_LIGHT                                                               \
    "           \"compute_parts\": 0.88, \"parts_compute\": 0.95}}\n"

#define H200_4                                                                                     \
    "{\"foregather_machine\": 1, \"name\": \"4xH200\", \"ranks\": 4,\n"                            \
    " \"host_memory\": \"768 GB\",\n" H200                                                         \
    " \"gather\": {\"latency\": 3.8e-5, \"bus_rates\": [[1e6, 1.82e10], [4.2e6, 6.14e10],\n"       \
    "            [1.68e7, 1.56e11], [6.7e7, 2.67e11], [2.68e8, 3.35e11], [1.07e9, 3.61e11]]},\n"   \
    " \"reduce\": {\"latency\": 7.8e-6, \"bus_rates\": [[1e6, 7.0e10], [4.2e6, 9.65e10],\n"        \
    "            [1.68e7, 2.2e11], [6.7e7, 2.68e11], [2.68e8, 3.01e11], [1.07e9, 3.24e11]]},\n"    \
    " \"all_to_all\": {\"latency\": 3.9e-5, \"bus_rates\": [[1e6, 1.86e10], [4.2e6, 6.16e10],\n"   \
    "            [1.68e7, 1.58e11], [6.7e7, 2.64e11], [2.68e8, 3.36e11], [1.07e9, 3.62e11]]},\n"   \
    " \"beside\": {\"compute_parts\": 0.98, \"parts_compute\": 0.42, \"update_parts\": 0.81,\n"    \
    "            \"parts_update\": 0.9, \"gather_parts\": 0.51, \"parts_gather\": 0.51,\n"         \
    "            \"compute_gather\": 0.98, \"compute_reduce\": 0.84, \"gather_compute\": 0.42,\n"  \
    "            \"reduce_compute\": 0.48, \"gather_reduce\": 0.63, \"reduce_gather\": "           \
    "0.53,\n" H200_UPDATE H200_LIGHT                                                               \
    "           \"compute_parts\": 0.88, \"parts_compute\": 0.6}}\n"

#define H100_8                                                                                     \
    "{\"foregather_machine\": 1, \"name\": \"8xH100\", \"ranks\": 8,\n"                            \
    " \"memory\": \"79 GiB\", \"reserved\": 1780000000, \"reserved_estimated\": true,\n"           \
    " \"workspace\": \"32 MiB\",\n"                                                                \
    " \"matmul\": {\"f32\": 5e13, \"bf16\": 6.5e14, \"f16\": 6.5e14},\n"                           \
    " \"vector\": 3e13, \"memory_rate\": 2.9e12, \"launch\": 2e-6,\n"                              \
    " \"host_memory\": \"2 TB\",\n" PCIE5                                                          \
    " \"gather\": {\"latency\": 3e-5, \"bus_rates\": [[8e6, 1.3e11], [1.28e8, 3.1e11],\n"          \
    "            [5.12e8, 3.55e11]]},\n"                                                           \
    " \"reduce\": {\"latency\": 3e-5, \"bus_rates\": [[8e6, 1.3e11], [1.28e8, 3.1e11],\n"          \
    "            [5.12e8, 3.65e11]]},\n"                                                           \
    " \"beside\": {\"compute_gather\": 0.7, \"compute_reduce\": 0.6, \"gather_compute\": 0.6,\n"   \
    "            \"reduce_compute\": 0.6, \"gather_reduce\": 0.5, \"reduce_gather\": 0.5,\n"       \
    "            \"compute_host\": 0.98, \"stash_fetch\": 0.9, \"fetch_stash\": 0.9}}\n"

static const Preset presets[] = {
    {"host", HOST}, {"2xT4", T4_2}, {"2xH200", H200_2}, {"4xH200", H200_4}, {"8xH100", H100_8},
};
static const char *const names[] = {"host", "2xT4", "2xH200", "4xH200", "8xH100"};

#define N_PRESETS (sizeof presets / sizeof *presets)
_Static_assert(sizeof names / sizeof *names == N_PRESETS, "a preset lacks its name");

const char *fg_machine_preset(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0)
            return presets[i].text;
    }
    return NULL;
}

const char *const *fg_machine_preset_names(uint32_t *out_n)
{
    *out_n = (uint32_t)N_PRESETS;
    return names;
}
