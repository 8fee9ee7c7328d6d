// Which of the parameters that are used next are whole, on their way or missing, in the order of their use,
// and which of them are to be gathered now. A pure value, whose calls take time that does not grow with the
// number of parameters, but for its logarithm.
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
    int type = 0;  // those of one type can be gathered together
  };

  /// Empty ones.
  void reset(size_t num_slots);
  void set(size_t slot, const Item& item);
  size_t size() const { return items_.size(); }

  /// The missing ones, in order, that fit into `room` elements, up to the first that does not or is of
  /// another type than those before it; none where the elements that are whole or on their way before that
  /// are more: what is little beside what is there waits until there is more of it.
  std::vector<size_t> to_gather(int64_t room) const;
  /// One after the other: the first missing one, if it fits and nothing before it is on its way.
  std::vector<size_t> next_to_gather(int64_t room) const;
  /// The first missing one from `slot` on; size() where there is none.
  size_t first_missing(size_t slot = 0) const;

 private:
  struct First {
    const PrefixSums* missing = nullptr;  // of its type; null: nothing is missing
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
