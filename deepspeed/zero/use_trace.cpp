#include "deepspeed/zero/use_trace.h"

#include <unordered_set>

namespace deepspeed::zero {

void UseTrace::begin() {
  position_ = 0;
  is_followed_ = !entries_.empty();
}

void UseTrace::use(const Entry& entry) {
  if (position_ > 0 && entries_[position_ - 1].key == entry.key) return;
  const bool is_next = position_ < entries_.size() && entries_[position_].key == entry.key;
  if (is_followed_ && !is_next) {
    entries_.resize(position_);
    is_followed_ = false;
  }
  if (!is_followed_) entries_.push_back(entry);
  ++position_;
}

void UseTrace::end() {
  entries_.resize(position_);
  is_followed_ = false;
}

std::optional<uint64_t> UseTrace::next() const {
  if (!is_followed_ || position_ == entries_.size()) return std::nullopt;
  return entries_[position_].key;
}

std::vector<uint64_t> UseTrace::ahead(int64_t max_numel) const {
  return is_followed_ ? keys_from(position_, max_numel) : std::vector<uint64_t>();
}

std::vector<uint64_t> UseTrace::keys_from(size_t place, int64_t max_numel) const {
  std::vector<uint64_t> keys;
  if (max_numel == 0) return keys;
  std::unordered_set<uint64_t> seen;
  int64_t numel = 0;
  for (size_t next = place; next < entries_.size(); ++next) {
    if (!seen.insert(entries_[next].key).second) continue;
    numel += entries_[next].numel;
    if (numel > max_numel) break;
    keys.push_back(entries_[next].key);
  }
  return keys;
}

std::optional<int64_t> UseTrace::distance_to(uint64_t key) const {
  return is_followed_ ? distance_from(position_, key) : std::nullopt;
}

std::optional<int64_t> UseTrace::distance_from(size_t place, uint64_t key) const {
  int64_t numel = 0;
  for (size_t next = place; next < entries_.size(); ++next) {
    if (entries_[next].key == key) return numel;
    numel += entries_[next].numel;
  }
  return std::nullopt;
}

int64_t UseTrace::rest() const {
  int64_t numel = 0;
  for (size_t next = position_; next < entries_.size(); ++next) numel += entries_[next].numel;
  return numel;
}

}  // namespace deepspeed::zero
