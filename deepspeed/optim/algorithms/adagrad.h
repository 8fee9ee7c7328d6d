// Adagrad on flat slices (Duchi, Hazan, Singer 2011).
//
// With g the scaled gradient, t the step and d = g + weight_decay * p:
//   v += d^2;   p -= lr / (1 + (t - 1) lr_decay) * n / (sqrt(v) + eps)
// where n is d in torch's Adagrad and g in DeepSpeed's CPU Adagrad.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

enum class AdagradKind {
  kTorch,        // "Adagrad", state "sum"
  kDeepSpeedCpu  // "DeepSpeedCPUAdagrad", state "exp_avg_sq"
};

/// Options of a group: lr, lr_decay, weight_decay, eps, initial_accumulator_value; what a group lacks has the
/// default of torch and DeepSpeed (1e-2, 0, 0, 1e-10, 0). The state is fp32 unless told otherwise.
class Adagrad : public Optimizer {
 public:
  /// A state of 16 bits is computed in fp32 and rounded to nearest: a sum of squares stops growing once it is
  /// some hundred times (bf16) or thousand times (fp16) a square.
  explicit Adagrad(std::vector<ParamGroup> groups, AdagradKind kind = AdagradKind::kTorch,
                   at::ScalarType state_dtype = at::kFloat);

  std::string name() const override;
  bool is_elementwise() const override { return true; }
  at::ScalarType state_dtype() const override { return states_.dtype(); }
  void step(const FlatSlice& slice, double gradient_scale) override;
  SliceState state(size_t slice_id) const override { return states_.state(slice_id); }
  void load_state(size_t slice_id, const SliceState& state) override { states_.load_state(slice_id, state); }
  void check_state(const SliceState& state) const override { states_.check_state(state); }
  int64_t state_bytes() const override { return states_.bytes(); }

 private:
  AdagradKind kind_;
  SliceStates states_;
};

}  // namespace deepspeed::optim
