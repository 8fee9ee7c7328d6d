// Adam's arguments for the CPU and CUDA kernels, as plain data without tensor types, so that nvcc never sees
// ATen.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/on_both.h"

namespace deepspeed::kernels {

/// Names how master weights are stored. With kFloat16 and kBFloat16 the model's own weights are the masters,
/// rounded to nearest. kLowerHalf means split masters (split_master.h), with bf16 `low_precision`.
enum class MasterForm { kFloat32, kFloat16, kBFloat16, kLowerHalf };

/// Points to arrays of `numel` elements. `low_precision` may be null; on CPU it may equal `gradient`. Other
/// arrays do not overlap.
struct AdamArrays {
  int64_t numel = 0;
  void* master = nullptr;
  MasterForm master_form = MasterForm::kFloat32;
  const void* gradient = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* low_precision = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  ElementType moment_type = ElementType::kFloat32;          // fp32 or bf16
  ElementType low_precision_type = ElementType::kBFloat16;  // fp16 or bf16
  // null, or on CUDA the gradient's scale, which replaces that of the constants
  const double* gradient_scale = nullptr;
};

/// Holds the constants of an update, derived in double and rounded to float once. Numerator and denominator
/// of the update are multiplied by sqrt(1 - beta2^t), which saves one multiplication per element.
struct AdamConstants {
  float gradient_scale = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float eps = 0;              // eps * sqrt(1 - beta2^t)
  float l2_decay = 0;         // times the master, added to the gradient
  float decoupled_decay = 0;  // lr * weight_decay, subtracted from the master
  float step_size = 0;        // lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  uint64_t rounding_seed = 0;
  int64_t first_index = 0;  // the first element's index for the random numbers

  // Updates with bf16 moments are limited by arithmetic; these constants save operations. With L2 decay the
  // gradient is scaled and the decay added first. Otherwise the gradient's scale is part of these two
  // factors.
  float to_exp_avg = 0;         // one_minus_beta1
  float to_root_of_square = 0;  // sqrt(one_minus_beta2): its product with the gradient is squared
  // These give the fraction divided by the step size: m / (inverse_step_size * sqrt(v) + eps_over_step_size).
  // A step size of 0 makes eps infinite.
  float inverse_step_size = 1;
  float eps_over_step_size = 0;

  // to_exp_avg and to_root_of_square without the scale, which may be known only on the device.
  double unscaled_to_exp_avg = 0;
  double unscaled_to_root_of_square = 0;
};

/// Sets gradient_scale and the two factors that include it. Each is rounded once, to the same bits on the CPU
/// and on the device.
DEEPSPEED_ON_BOTH inline void set_gradient_scale(AdamConstants& constants, double scale) {
  const double factor = constants.l2_decay == 0 ? scale : 1.0;
  constants.gradient_scale = static_cast<float>(scale);
  constants.to_exp_avg = static_cast<float>(constants.unscaled_to_exp_avg * factor);
  constants.to_root_of_square = static_cast<float>(constants.unscaled_to_root_of_square * factor);
}

}  // namespace deepspeed::kernels
