// 1-bit Adam: Adam that freezes its second moments, after which ranks exchange compressed momenta instead of
// gradients (Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence
// Speed", 2021).
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/optim/algorithms/adam.h"

namespace deepspeed::optim {

/// Steps slices by 1-bit Adam as in DeepSpeed. Weight decay is decoupled, and there is no bias correction. Up
/// to freeze_step a step is Adam's. After it the second moments stay fixed, and a step uses the ranks' mean
/// momentum in place of a gradient.
class OneBitAdam final : public Adam {
 public:
  /// freeze_step: number of steps that update the second moments.
  OneBitAdam(std::vector<ParamGroup> groups, int64_t freeze_step);

  bool compresses_exchange() const override { return true; }
  GradientUse next_gradient() const override;
  bool takes_steps_back() const override { return false; }
  bool steps_split_masters() const override { return false; }
  bool takes_scale_on_device() const override { return false; }
  bool skips_on_device() const override { return false; }
  void step(const FlatSlice& slice, double gradient_scale) override;

 private:
  int64_t freeze_step_;
};

}  // namespace deepspeed::optim
