#include "deepspeed/zero/prefetch/coordinator.h"

namespace deepspeed::zero {

void Coordinator::begin_pass(AccessMode mode) {
  if (mode == AccessMode::kAny) return;
  mode_ = mode;
  current_ = &traces_[static_cast<size_t>(mode)];
  current_->begin();
}

std::vector<uint64_t> Coordinator::next_pass(int64_t max_numel) const {
  const UseTrace& evaluation = traces_[static_cast<size_t>(AccessMode::kEvaluation)];
  return evaluated_last_ ? evaluation.beginning(max_numel) : std::vector<uint64_t>();
}

void Coordinator::end_pass() {
  if (current_ != nullptr) current_->end();
  evaluated_last_ = current_ == &traces_[static_cast<size_t>(AccessMode::kEvaluation)];
  current_ = nullptr;
}

bool Coordinator::note_use(uint64_t key, int64_t numel) {
  if (current_ == nullptr) return false;
  const bool was_followed = current_->is_followed();
  current_->use({key, numel});
  return was_followed && !current_->is_followed();
}

const UseTrace* Coordinator::followed() const {
  return current_ != nullptr && current_->is_followed() ? current_ : nullptr;
}

bool Coordinator::stays(uint64_t key) const {
  if (followed() == nullptr) return true;
  const auto distance = current_->distance_to(key);
  return distance && *distance <= max_reuse_distance_;
}

bool Coordinator::stays_for_backward(uint64_t key) const {
  if (mode_ != AccessMode::kForward || (current_ != nullptr && !current_->is_followed())) return false;
  const UseTrace& backward = traces_[static_cast<size_t>(AccessMode::kBackward)];
  const auto distance = backward.distance_from_begin(key);
  const int64_t before = current_ != nullptr ? current_->rest() : 0;
  return distance && before + *distance <= max_reuse_distance_;
}

bool Coordinator::is_over_in_backward(uint64_t key) const {
  const bool has_backward = mode_ == AccessMode::kBackward || mode_ == AccessMode::kTraining;
  if (!has_backward || followed() == nullptr) return false;
  return !current_->distance_to(key);
}

}  // namespace deepspeed::zero
