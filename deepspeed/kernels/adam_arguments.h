// Adam's arguments as plain data: what the CPU and CUDA kernels get. No tensor type, so that nvcc never sees
// ATen.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/element_type.h"

namespace deepspeed::kernels {

/// Arrays of `numel` elements. `low_precision` may be null; nothing overlaps.
struct AdamArrays {
  int64_t numel = 0;
  float* master = nullptr;
  const void* gradient = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* low_precision = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  ElementType moment_type = ElementType::kFloat32;          // fp32 or bf16
  ElementType low_precision_type = ElementType::kBFloat16;  // fp16 or bf16
};

/// What an update needs of the hyperparameters: derived in double, rounded to float once.
struct AdamConstants {
  float gradient_scale = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float eps = 0;
  float l2_decay = 0;            // added to the gradient, times the master
  float decoupled_decay = 0;     // lr * weight_decay, taken off the master
  float step_size = 0;           // lr / (1 - beta1^t)
  float inverse_sqrt_bias2 = 1;  // 1 / sqrt(1 - beta2^t)
  uint64_t rounding_seed = 0;
};

}  // namespace deepspeed::kernels
