#include "deepspeed/zero/offload/step_ahead.h"

#include <utility>

#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::zero {

// A new thread starts on the first CUDA device. Waiting there for another device's events would leave a
// context on the first one.
StepAhead::StepAhead(const device::Cores& cores, at::Device device) : worker_(cores) {
  if (device.is_cuda()) worker_.add([device] { device::set_cuda_device(device.index()); });
}

void StepAhead::begin(std::vector<OwnedPart> slices, const std::vector<OwnedPart>& parts,
                      const std::vector<optim::ParamGroup>& groups) {
  places_.assign(slices.size(), std::nullopt);
  outcomes_.assign(slices.size(), {});
  order_.clear();
  options_.clear();
  for (const optim::ParamGroup& group : groups) options_.push_back(group.options);
  num_before_ = worker_.num_added();
  arrivals_.emplace(std::move(slices), parts);
}

std::optional<size_t> StepAhead::changed_group(const std::vector<optim::ParamGroup>& groups) const {
  for (size_t group = 0; group < groups.size(); ++group) {
    if (group >= options_.size() || groups[group].options.items() != options_[group].items()) return group;
  }
  return std::nullopt;
}

void StepAhead::add(size_t slice, Step step) {
  places_[slice] = order_.size();
  order_.push_back(slice);
  worker_.add([&outcome = outcomes_[slice], step = std::move(step)] { outcome = step(); });
}

StepAhead::Outcome StepAhead::outcome(size_t slice) {
  worker_.wait_for(num_before_ + static_cast<int64_t>(*places_[slice]) + 1);
  return outcomes_[slice];
}

void StepAhead::end() noexcept {
  worker_.forget_error();
  arrivals_.reset();
}

}  // namespace deepspeed::zero
