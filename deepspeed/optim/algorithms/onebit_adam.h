// 1-bit Adam: Adam whose second moments stop changing, after which ranks exchange momenta, compressed, in
// place of gradients (Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's
// Convergence Speed", 2021).
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/optim/algorithms/adam.h"

namespace deepspeed::optim {

/// As DeepSpeed's: weight decay is decoupled, and the moments' start at 0 is never made up for. Up to
/// freeze_step a step is one of Adam without bias correction; after it the second moments stay as they are,
/// and a step takes the ranks' mean of the momentum as its gradient.
class OneBitAdam final : public Adam {
 public:
  /// freeze_step: steps with second moments that change.
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
