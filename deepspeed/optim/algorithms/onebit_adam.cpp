#include "deepspeed/optim/algorithms/onebit_adam.h"

#include <algorithm>
#include <utility>

#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> without_correction(std::vector<ParamGroup> groups) {
  for (ParamGroup& group : groups) group.options.set("bias_correction", false);
  return groups;
}

}  // namespace

OneBitAdam::OneBitAdam(std::vector<ParamGroup> groups, int64_t freeze_step)
    : Adam(without_correction(std::move(groups)), {.class_name = "OnebitAdam"}), freeze_step_(freeze_step) {}

bool OneBitAdam::takes_momentum() const {
  return !steps_.empty() &&
         std::ranges::all_of(steps_, [&](const auto& entry) { return entry.second >= freeze_step_; });
}

// With betas of 0 and 1 Adam's own step takes the momentum as it is given, and leaves the second moment.
void OneBitAdam::step(const FlatSlice& slice, double gradient_scale) {
  int64_t& steps = steps_[slice.id];
  if (steps < freeze_step_) {
    Adam::step(slice, gradient_scale);
  } else {
    Hyperparameters frozen = options_of(*this, slice);
    frozen.set("betas", std::pair{0.0, 1.0});
    FlatSlice with_momentum = slice;
    with_momentum.options = &frozen;
    Adam::step(with_momentum, gradient_scale);
  }
  ++steps;
}

void OneBitAdam::load_state(size_t slice_id, const SliceState& state) {
  Adam::load_state(slice_id, state);
  steps_[slice_id] = state.step;
}

}  // namespace deepspeed::optim
