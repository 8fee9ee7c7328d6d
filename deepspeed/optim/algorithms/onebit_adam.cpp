#include "deepspeed/optim/algorithms/onebit_adam.h"

#include <utility>

#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

OneBitAdam::OneBitAdam(std::vector<ParamGroup> groups, int64_t freeze_step)
    : Adam(without_bias_correction(std::move(groups)), {.class_name = "OnebitAdam"}),
      freeze_step_(freeze_step) {}

GradientUse OneBitAdam::next_gradient() const {
  return all_have_made(freeze_step_) ? GradientUse::kMomentum : GradientUse::kMean;
}

// With betas of 0 and 1 Adam's own step uses the given momentum as it is, and keeps the second moment.
void OneBitAdam::step(const FlatSlice& slice, double gradient_scale) {
  if (steps_of(slice.id) < freeze_step_) {
    step_uncorrected(slice, gradient_scale);
  } else {
    step_uncorrected(slice, gradient_scale, std::pair{0.0, 1.0});
  }
}

}  // namespace deepspeed::optim
