// These are the functions of DeepSpeed's cpu_adam op, for programs that keep the tensors of their optimizers
// themselves.
#pragma once

#include <cstdint>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/kernels/adam.h"

namespace deepspeed {

/// Holds the optimizers that create_adam() made, by the caller's numbers; nothing is global. The functions
/// throw UsageError for a number that is not there (create_adam(): that is), and where kernels::adam() would.
class DEEPSPEED_API CpuAdamOp {
 public:
  /// Makes an optimizer under a number. Only the kind of decay is kept: each update is told its rates.
  /// should_log: a line of the log says what was made.
  void create_adam(int64_t optimizer_id, double lr = 1e-3, double beta1 = 0.9, double beta2 = 0.999,
                   double eps = 1e-8, double weight_decay = 0, bool adamw_mode = true,
                   bool should_log = false);

  /// Makes the `step`th step, from 1 on. All tensors have one size: `params` and `grads` are fp32, fp16 or
  /// bf16, `exp_avg` and `exp_avg_sq` fp32, or of 16 bits, computed in fp32 and rounded to nearest.
  void adam_update(int64_t optimizer_id, int64_t step, double lr, double beta1, double beta2, double eps,
                   double weight_decay, bool bias_correction, const at::Tensor& params,
                   const at::Tensor& grads, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) const;

  /// Takes the update with the same arguments back, as kernels::adam_rollback() does. All tensors are fp32.
  void adam_rollback(int64_t optimizer_id, int64_t step, double lr, double beta1, double beta2, double eps,
                     double weight_decay, bool bias_correction, const at::Tensor& params,
                     const at::Tensor& grads, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) const;

  void destroy_adam(int64_t optimizer_id);

 private:
  bool adamw_mode_of(const char* call, int64_t optimizer_id) const;

  std::unordered_map<int64_t, bool> adamw_modes_;
};

}  // namespace deepspeed
