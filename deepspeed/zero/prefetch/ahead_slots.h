// Tracks which of the next parameters are whole, being gathered or missing, in order of use, and which to
// gather now. It is a pure value. Each call takes time logarithmic in their number.
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

  /// Returns the missing slots to gather now, in order. They are of one type and fit into `room` elements.
  /// Prefetches are batched: they start only if, up to the last of them, at least as many elements are
  /// missing as are whole or being gathered. Otherwise returns no slots.
  std::vector<size_t> to_gather(int64_t room) const;
  /// Returns the first missing slot, or nothing. It must fit into `room`, and no earlier slot may be being
  /// gathered. Used to gather one parameter after the other.
  std::vector<size_t> next_to_gather(int64_t room) const;
  /// Returns the first missing slot from `slot` on, or size() if there is none.
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
  PrefixSums there_;                   // elements that are whole or being gathered
  PrefixSums gathering_;               // elements that are being gathered
  std::map<int, PrefixSums> missing_;  // elements, by type
};

}  // namespace deepspeed::zero
