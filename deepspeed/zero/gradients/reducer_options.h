// Says how gradients are summed over the ranks, from the config and the model.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/gradients/quantized_sum.h"
#include "deepspeed/zero/layout/param_set.h"

namespace deepspeed::zero {

/// Maps single parameters, by the model's tensors, to dtypes.
using ParamDtypes = std::unordered_map<const at::TensorImpl*, at::ScalarType>;
/// Maps parameters to the number, from 1 on, of their unit (GatherUnit).
using ParamUnits = std::unordered_map<const at::TensorImpl*, size_t>;

/// Says how a sum over ranks becomes the gradient of the whole batch. It covers DeepSpeed's
/// prescale_gradients, gradient_predivide_factor and gradient_allreduce_op. The gradient is multiplied by
/// `before`, summed over the ranks, and multiplied by `after`. 1 means no multiplication.
struct Averaging {
  double before = 1.0;
  double after = 1.0;

  static Averaging mean(int world_size) { return {1.0, 1.0 / world_size}; }
  static Averaging prescaled_mean(int world_size) { return {1.0 / world_size, 1.0}; }
  /// On one rank nothing is summed, so nothing is divided either.
  static Averaging predivided_mean(int world_size, double factor) {
    return world_size == 1 ? mean(1) : Averaging{1.0 / factor, factor / world_size};
  }
  static Averaging sum() { return {1.0, 1.0}; }
};

/// Holds the options for summing gradients.
struct ReducerOptions {
  config::ZeroGradientConfig keys;
  // The config makes windows of several backwards. Stage 1 then allocates their sums at once.
  bool expects_accumulation = false;
  bool overlap = false;                             // launch a bucket as soon as its gradients have arrived
  at::ScalarType communication_dtype = at::kFloat;  // for fp64 parameters fp32 means fp64
  // Dtype in which replicas of a shard add their sums. Absent: the dtype in which they are kept.
  std::optional<at::ScalarType> replica_dtype;
  ParamDtypes param_communication_dtypes;  // parameters with a communication dtype of their own
  ParamSet by_rows;                        // parameters whose gradients are sent as their nonzero rows
  ParamUnits units;  // leaf modules: which of their gradients exist varies between ranks
  // Dtype of the kept sums. Absent, and for fp64 parameters: the parameters' dtype.
  std::optional<at::ScalarType> accumulation_dtype;
  Averaging averaging;
  bool is_quantized = false;        // at stage 3, gradients of matrices travel in 4 bits (quantized_sum.h)
  std::optional<LocoOptions> loco;  // for quantized sums
};

}  // namespace deepspeed::zero
