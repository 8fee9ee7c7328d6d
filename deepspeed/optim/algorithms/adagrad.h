// Adagrad for flat slices (Duchi, Hazan, Singer 2011).
//
// With g the scaled gradient, t the step and d = g + weight_decay * p:
//   v += d^2;   p -= lr / (1 + (t - 1) lr_decay) * n / (sqrt(v) + eps)
// where n is d in torch's Adagrad and g in DeepSpeed's CPU Adagrad.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/optim/slices/optimizer_with_states.h"

namespace deepspeed::optim {

enum class AdagradKind {
  kTorch,        // "Adagrad", state "sum"
  kDeepSpeedCpu  // "DeepSpeedCPUAdagrad", state "exp_avg_sq"
};

/// Steps slices by Adagrad. A group's options are lr, lr_decay, weight_decay, eps, initial_accumulator_value,
/// with the defaults of torch and DeepSpeed (1e-2, 0, 0, 1e-10, 0). The state is fp32 unless state_dtype says
/// otherwise.
class Adagrad : public OptimizerWithStates {
 public:
  /// Makes the optimizer. A 16-bit state is computed in fp32 and rounded to nearest. Its sum of squares stops
  /// growing once it is some hundred (bf16) or thousand (fp16) times a single square.
  explicit Adagrad(std::vector<ParamGroup> groups, AdagradKind kind = AdagradKind::kTorch,
                   at::ScalarType state_dtype = at::kFloat);

  std::string name() const override;
  bool is_elementwise() const override { return true; }
  bool takes_scale_on_device() const override { return true; }
  bool skips_on_device() const override { return true; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void forget_step(size_t slice_id) override { states_.forget_step(slice_id); }

 private:
  AdagradKind kind_;
};

}  // namespace deepspeed::optim
