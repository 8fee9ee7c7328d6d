#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

void UseTrace::begin() {
  position_ = 0;
  is_followed_ = !uses_.empty();
  for (auto& [key, places] : places_) places.next = places.first;
}

void UseTrace::use(const Entry& entry) {
  if (position_ > 0 && uses_[position_ - 1].entry.key == entry.key) return;
  const bool is_next = position_ < uses_.size() && uses_[position_].entry.key == entry.key;
  if (is_followed_ && !is_next) {
    cut(position_);
    is_followed_ = false;
  }
  is_followed_ ? pass_by(position_) : append(entry);
  ++position_;
}

void UseTrace::end() {
  cut(position_);
  is_followed_ = false;
}

void UseTrace::append(const Entry& entry) {
  const size_t place = uses_.size();
  uses_.push_back({entry, end_of(place) + entry.numel});
  const auto [known, is_new] = places_.try_emplace(entry.key, Places{place, place});
  if (is_new) return;
  uses_[place].previous = known->second.last;
  uses_[known->second.last].next = place;
  known->second.last = place;
}

void UseTrace::pass_by(size_t place) { places_[uses_[place].entry.key].next = uses_[place].next; }

void UseTrace::cut(size_t size) {
  for (; uses_.size() > size; uses_.pop_back()) {
    const auto [entry, end, previous, next] = uses_.back();
    if (previous == kNowhere) {
      places_.erase(entry.key);
    } else {
      uses_[previous].next = kNowhere;
      places_[entry.key].last = previous;
    }
  }
}

std::optional<size_t> UseTrace::next_of(uint64_t key) const {
  const auto found = places_.find(key);
  if (!is_followed_ || found == places_.end()) return std::nullopt;
  return known(found->second.next);
}

std::optional<int64_t> UseTrace::distance_to(uint64_t key) const {
  const auto place = next_of(key);
  return place ? std::optional(end_of(*place) - end_of(position_)) : std::nullopt;
}

std::optional<int64_t> UseTrace::distance_from_begin(uint64_t key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? std::nullopt : std::optional(end_of(found->second.first));
}

std::vector<uint64_t> UseTrace::beginning(int64_t max_numel) const {
  std::vector<uint64_t> keys;
  if (max_numel == 0) return keys;
  int64_t numel = 0;
  for (const Use& use : uses_) {
    if (use.previous != kNowhere) continue;
    numel += use.entry.numel;
    if (numel > max_numel) break;
    keys.push_back(use.entry.key);
  }
  return keys;
}

}  // namespace deepspeed::zero
