#include "deepspeed/zero/gradients/buckets/launch_order.h"

#include <utility>

namespace deepspeed::zero {
namespace {
constexpr size_t kNone = static_cast<size_t>(-1);
}

LaunchOrder::LaunchOrder(const std::vector<Bucket>& buckets, const std::vector<size_t>& params_per_group,
                         std::vector<bool> is_gated)
    : is_gated_(std::move(is_gated)) {
  is_gated_.resize(buckets.size(), false);
  is_open_.resize(buckets.size(), false);
  for (const size_t count : params_per_group) {
    bucket_of_.emplace_back(count, kNone);
    arrived_.emplace_back(count, false);
  }
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    for (const size_t param : buckets[bucket].params) bucket_of_[buckets[bucket].group][param] = bucket;
    sizes_.push_back(buckets[bucket].params.size());
  }
  missing_ = sizes_;
}

void LaunchOrder::mark_arrived(size_t group, size_t param) {
  if (arrived_[group][param]) return;
  arrived_[group][param] = true;
  const size_t bucket = bucket_of_[group][param];
  if (bucket != kNone) --missing_[bucket];
}

std::optional<size_t> LaunchOrder::bucket_of(size_t group, size_t param) const {
  const size_t bucket = bucket_of_[group][param];
  return bucket == kNone ? std::nullopt : std::optional(bucket);
}

bool LaunchOrder::was_launched(size_t group, size_t param) const {
  const size_t bucket = bucket_of_[group][param];
  return bucket != kNone && bucket < next_;
}

std::optional<size_t> LaunchOrder::take_complete() {
  if (next_ == sizes_.size()) return std::nullopt;
  const bool is_complete = is_gated_[next_] ? is_open_[next_] : missing_[next_] == 0;
  return is_complete ? std::optional(next_++) : std::nullopt;
}

std::optional<size_t> LaunchOrder::take_any() {
  if (next_ == sizes_.size()) return std::nullopt;
  return next_++;
}

void LaunchOrder::reset() {
  next_ = 0;
  missing_ = sizes_;
  is_open_.assign(is_open_.size(), false);
  for (auto& group : arrived_) group.assign(group.size(), false);
}

}  // namespace deepspeed::zero
