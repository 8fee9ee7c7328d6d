// Knows which of the parameters that are used next are whole, on their way or missing, in the order of use,
// and which to gather now. A pure value: each call takes time that grows as the logarithm of their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "deepspeed/zero/prefetch/prefix_sums.h"

namespace deepspeed::zero {

class AheadSlots {
 public:
  enum class Kind { kNothing, kWhole, kGathering, kMissing };

  struct Item {
    Kind kind = Kind::kNothing;
    int64_t numel = 0;
    int type = 0;  // items of one type can be gathered together
  };

  /// Makes all slots empty.
  void reset(size_t num_slots);
  void set(size_t slot, const Item& item);
  size_t size() const { return items_.size(); }

  /// Returns the missing slots to gather now, in order: as many of one type as fit into `room` elements. It
  /// returns none while more elements are there ahead of them than they have: prefetches are batched, and
  /// start only when at least as much is missing as is already gathered ahead.
  std::vector<size_t> to_gather(int64_t room) const;
  /// Gathers one after the other: returns the first missing slot, if it fits and nothing before it is on its
  /// way.
  std::vector<size_t> next_to_gather(int64_t room) const;
  /// Returns the first missing slot from `slot` on; size() where there is none.
  size_t first_missing(size_t slot = 0) const;

 private:
  struct First {
    const PrefixSums* missing = nullptr;  // the sums of its type; null: nothing is missing
    size_t slot = 0;
    size_t of_another_type = 0;
  };
  First first_of_all() const;
  void count(const Item& item, size_t slot, int64_t sign);

  std::vector<Item> items_;
  PrefixSums there_;                   // elements that are whole or on their way
  PrefixSums gathering_;               // elements that are on their way
  std::map<int, PrefixSums> missing_;  // elements, by type
};

}  // namespace deepspeed::zero
