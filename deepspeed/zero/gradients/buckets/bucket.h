// Says which gradients travel together, and in which order. This static data follows only from the partition,
// so all ranks agree, whatever order their gradients arrive in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// Says how gradients travel. A bucket holds gradients of only one kind.
struct BucketKind {
  at::ScalarType dtype = at::kFloat;
  bool is_quantized = false;  // travels in 4 bits
  size_t by_rows = 0;         // number, from 1 on, of a parameter that travels alone as rows; 0: none
  size_t unit = 0;            // the unit of all its parameters (ParamUnits); 0: none
  friend bool operator==(const BucketKind&, const BucketKind&) = default;
};

/// Holds whole parameters whose gradients travel together: an interval of one group's flat space.
struct Bucket {
  size_t group = 0;
  Interval in_flat;
  std::vector<size_t> params;  // indices as given to the layout, in flat order
  BucketKind kind = {};
};

/// Returns the buckets of all groups in launch order. They start at the end of the last group's flat space,
/// since backward reaches the last parameters first. A bucket holds at most `max_numel` elements, or a single
/// larger parameter. kinds: [group][index as given]; empty: all of one kind. Throws UsageError if max_numel <
/// 1.
std::vector<Bucket> make_buckets(const std::vector<FlatLayout>& layouts, int64_t max_numel,
                                 const std::vector<std::vector<BucketKind>>& kinds = {});

}  // namespace deepspeed::zero
