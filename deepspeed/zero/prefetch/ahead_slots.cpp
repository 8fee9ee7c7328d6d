#include "deepspeed/zero/prefetch/ahead_slots.h"

#include <algorithm>

namespace deepspeed::zero {

void AheadSlots::reset(size_t num_slots) {
  items_.assign(num_slots, {});
  there_ = PrefixSums(num_slots);
  gathering_ = there_;
  missing_.clear();
}

void AheadSlots::set(size_t slot, const Item& item) {
  count(items_[slot], slot, -1);
  items_[slot] = item;
  count(item, slot, 1);
}

void AheadSlots::count(const Item& item, size_t slot, int64_t sign) {
  if (item.kind == Kind::kNothing) return;
  if (item.kind == Kind::kMissing) {
    missing_.try_emplace(item.type, size()).first->second.add(slot, sign * item.numel);
    return;
  }
  there_.add(slot, sign * item.numel);
  if (item.kind == Kind::kGathering) gathering_.add(slot, sign * item.numel);
}

AheadSlots::First AheadSlots::first_of_all() const {
  First first{nullptr, size(), size()};
  for (const auto& [type, missing] : missing_) {
    const size_t slot = missing.first_above(0);
    if (slot >= first.slot) {
      first.of_another_type = std::min(first.of_another_type, slot);
      continue;
    }
    first = {&missing, slot, first.slot};
  }
  return first;
}

std::vector<size_t> AheadSlots::to_gather(int64_t room) const {
  const First first = first_of_all();
  if (first.missing == nullptr) return {};
  const PrefixSums& missing = *first.missing;
  const size_t end = std::min(first.of_another_type, missing.first_above(std::max<int64_t>(room, 0)));
  if (missing.before(end) < there_.before(end)) return {};
  std::vector<size_t> slots;
  for (size_t slot = first.slot; slot < end; slot = missing.first_above(missing.before(slot + 1)))
    slots.push_back(slot);
  return slots;
}

std::vector<size_t> AheadSlots::next_to_gather(int64_t room) const {
  const size_t slot = first_missing();
  if (slot == size() || gathering_.first_above(0) < slot || items_[slot].numel > room) return {};
  return {slot};
}

size_t AheadSlots::first_missing(size_t slot) const {
  size_t first = size();
  for (const auto& [type, missing] : missing_)
    first = std::min(first, missing.first_above(missing.before(slot)));
  return first;
}

}  // namespace deepspeed::zero
