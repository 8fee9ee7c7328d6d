// Which gradients travel together, and in which order: static data that follows from the partition alone, so
// that all ranks agree whatever order their gradients come in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// How gradients travel; those that do so in different ways share no bucket.
struct BucketKind {
  at::ScalarType dtype = at::kFloat;
  bool is_quantized = false;  // in 4 bits
  size_t by_rows = 0;  // the number, from 1 on, of a parameter that travels by its rows, alone; 0: none
  size_t unit = 0;     // that all its parameters are in (ParamUnits); 0: none
  friend bool operator==(const BucketKind&, const BucketKind&) = default;
};

/// An interval of one group's flat space, bounded by parameters.
struct Bucket {
  size_t group = 0;
  Interval in_flat;
  std::vector<size_t> params;  // indices as given to the layout, in flat order
  BucketKind kind = {};
};

/// The buckets of all groups in launch order: from the end of the flat space, since backward reaches the last
/// parameters first. A bucket holds at most `max_numel` elements, or one parameter that is larger.
/// kinds: [group][index as given], empty: all of one kind; parameters of different kinds never share a
/// bucket. Throws UsageError where max_numel < 1.
std::vector<Bucket> make_buckets(const std::vector<FlatLayout>& layouts, int64_t max_numel,
                                 const std::vector<std::vector<BucketKind>>& kinds = {});

}  // namespace deepspeed::zero
