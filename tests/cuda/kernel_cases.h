/* What the files of test_kernels share: how a case is named and checked, and the groups of cases
 * that main runs but does not hold. */
#ifndef FG_TESTS_CUDA_KERNEL_CASES_H
#define FG_TESTS_CUDA_KERNEL_CASES_H

#include "tests/cuda/kernel_rig.h"

static const uint64_t FLOATS[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16};
static const uint64_t NONE = FG_RT_NONE;

std::string label(const char *call, uint64_t dt, std::initializer_list<uint64_t> sizes);

#define CHECK(rig, name, call, ...) (rig).check(name, fg_host_##call, fg_cuda_##call, __VA_ARGS__)

/* ---- vocab_kernels.cu ---- */
void test_loss(Rig &r);
void test_lookup(Rig &r);
void test_lookup_rows(Rig &r);
void test_row_set(Rig &r);
void test_vocab(Rig &r);
void test_vocab_loss(Rig &r);

/* ---- product_kernels.cu ---- */
void test_linear(Rig &r);
void test_matmul(Rig &r);
void test_choice(Rig &r);

/* ---- update_kernels.cu ---- */
void test_update(Rig &r);

#endif
