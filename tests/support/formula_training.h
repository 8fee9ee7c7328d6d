// Initial weights and token sequences as pure functions of integers: the C++ twin of
// tests/golden/deepspeed_training/formula.py (its README.md defines the functions).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace deepspeed::testing {

/// The output function of SplitMix64 at state `x`.
uint64_t splitmix64(uint64_t x);
uint64_t hash3(uint64_t stream, uint64_t k, uint64_t i);
/// The 53 high bits of `h` as a double in [-1, 1).
double uniform(uint64_t h);

/// Overwrites every parameter: weights of layer norms (`ln_...weight`) lie around 1, all others around 0.
void fill_parameters(torch::nn::Module& module, double scale);

struct FormulaBatch {
  at::Tensor tokens;   // (micro_batch, context) int64
  at::Tensor targets;  // (micro_batch, context) int64, the next tokens
};

struct FormulaData {
  int64_t world_size = 1;
  int64_t micro_batch = 4;
  int64_t context = 16;
  int64_t vocabulary = 64;

  /// The samples of one rank in one micro step, counted from the start of the training.
  FormulaBatch batch(int64_t micro_step, int64_t rank) const;
};

}  // namespace deepspeed::testing
