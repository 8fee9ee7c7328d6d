// Lion for flat slices (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675).
//
// With g the scaled gradient and b1, b2 the betas:
//   c = b1 m + (1 - b1) g;   p = p (1 - lr * weight_decay) - lr * sign(c);   m = b2 m + (1 - b2) g
// sign(0) is 0: an element that never had a gradient only decays. (DeepSpeed's kernels move it by lr, on CPU
// and on CUDA in opposite directions.)
#pragma once

#include <string>
#include <vector>

#include "deepspeed/optim/slices/optimizer_with_states.h"

namespace deepspeed::optim {

/// Steps slices by Lion. A group's options are lr, betas, weight_decay, with DeepSpeed's defaults (1e-3,
/// (0.9, 0.999), 0). The state is exp_avg, fp32 unless state_dtype says otherwise.
class Lion : public OptimizerWithStates {
 public:
  /// Makes the optimizer. `class_name`: "FusedLion" or "DeepSpeedCPULion". A 16-bit state is computed in fp32
  /// and rounded to nearest.
  explicit Lion(std::vector<ParamGroup> groups, std::string class_name = "FusedLion",
                at::ScalarType state_dtype = at::kFloat);

  std::string name() const override { return class_name_; }
  bool is_elementwise() const override { return true; }
  bool takes_scale_on_device() const override { return true; }
  bool skips_on_device() const override { return true; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void forget_step(size_t slice_id) override { states_.forget_step(slice_id); }

 private:
  std::string class_name_;
};

}  // namespace deepspeed::optim
