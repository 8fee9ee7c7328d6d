// Applies an update rule to flat tensors in one pass, on CPU or CUDA.
#pragma once

#include <initializer_list>
#include <source_location>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

/// Holds the tensors of an update: n elements each, contiguous, on one device.
struct UpdateTensors {
  at::Tensor master;         // fp32 or fp64
  at::Tensor gradient;       // fp32, fp16 or bf16, read-only; fp64 for an fp64 master
  at::Tensor low_precision;  // receives the fp16 or bf16 copy of the new fp32 master; undefined: no copy
  std::initializer_list<std::pair<const char*, at::Tensor>>
      states;  // in the master's dtype, s0 to s2 of the rule, with their names
  // Undefined, or one fp64 number on the device of the others, which replaces the rule's scale. If it is nan
  // nothing is written: the step is skipped.
  at::Tensor gradient_scale = {};
};

/// Applies the rule in place. Throws UsageError, naming `where` and the tensor, if sizes, dtypes, devices or
/// the number of states do not fit. Uses at::get_num_threads() threads on CPU and the current stream on CUDA.
/// Neither threads nor instruction sets change the result.
DEEPSPEED_API void update(const UpdateTensors& tensors, const UpdateRule& rule,
                          const std::source_location& where = std::source_location::current());

}  // namespace deepspeed::kernels
