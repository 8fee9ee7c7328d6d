// Which gradients travel together, and in which order: static data that follows from the partition alone, so
// that all ranks agree whatever order their gradients come in.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// An interval of one group's flat space, bounded by parameters.
struct Bucket {
  size_t group = 0;
  Interval in_flat;
  std::vector<size_t> params;  // indices as given to the layout, in flat order
  int kind = 0;                // that all its parameters have
};

/// The buckets of all groups in launch order: from the end of the flat space, since backward reaches the last
/// parameters first. A bucket holds at most `max_numel` elements, or one parameter that is larger.
/// kinds: [group][index as given], empty: all of one kind; parameters of different kinds never share a
/// bucket. Throws UsageError where max_numel < 1.
std::vector<Bucket> make_buckets(const std::vector<FlatLayout>& layouts, int64_t max_numel,
                                 const std::vector<std::vector<int>>& kinds = {});

}  // namespace deepspeed::zero
