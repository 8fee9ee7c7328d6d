// How gradients are summed over the ranks, as the config and the model say.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/gradients/quantized_sum.h"
#include "deepspeed/zero/layout/param_set.h"

namespace deepspeed::zero {

/// Dtypes of single parameters, by the tensors of the model.
using ParamDtypes = std::unordered_map<const at::TensorImpl*, at::ScalarType>;
/// Maps parameters to the number, from 1 on, of the unit (gather_unit.h) that they are in.
using ParamUnits = std::unordered_map<const at::TensorImpl*, size_t>;

/// How a sum over ranks becomes the gradient of the whole batch, as DeepSpeed's prescale_gradients,
/// gradient_predivide_factor and gradient_allreduce_op say. The gradient is multiplied by `before`, summed
/// over the ranks, multiplied by `after`. 1 means: no multiplication.
struct Averaging {
  double before = 1.0;
  double after = 1.0;

  static Averaging mean(int world_size) { return {1.0, 1.0 / world_size}; }
  static Averaging prescaled_mean(int world_size) { return {1.0 / world_size, 1.0}; }
  static Averaging predivided_mean(int world_size, double factor) {
    return {1.0 / factor, factor / world_size};
  }
  static Averaging sum() { return {1.0, 1.0}; }
};

/// How gradients are summed, as the config and the model say.
struct ReducerOptions {
  config::ZeroGradientConfig keys;
  // Windows have several backwards, as the config has it: at stage 1 memory for their sums is made at once.
  bool expects_accumulation = false;
  bool overlap = false;                             // launch a bucket as soon as its gradients are there
  at::ScalarType communication_dtype = at::kFloat;  // fp32 means fp64 for parameters in fp64
  // That of sums which replicas of a shard add to each other. Absent: the dtype in which they are kept.
  std::optional<at::ScalarType> replica_dtype;
  ParamDtypes param_communication_dtypes;  // of parameters that travel in a dtype of their own
  ParamSet by_rows;                        // parameters whose gradient travels as its touched rows
  ParamUnits units;  // of leaf modules: which of their gradients exist differs from rank to rank
  // The dtype of the sums that are kept. Absent, and for parameters in fp64, it is the parameters' own.
  std::optional<at::ScalarType> accumulation_dtype;
  Averaging averaging;
  bool is_quantized = false;        // gradients of matrices travel in 4 bits (quantized_sum.h), at stage 3
  std::optional<LocoOptions> loco;  // of these
};

}  // namespace deepspeed::zero
