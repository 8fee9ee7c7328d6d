// Half-open intervals of element indices, used by every partition, and the division into equal shards.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepspeed {

/// Describes the elements [begin, end) of a flat tensor.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t numel() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(const Interval& other) const { return other.begin >= begin && other.end <= end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Returns the common part of both; empty (begin == end) if they do not overlap.
inline Interval intersect(const Interval& a, const Interval& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Returns the number of elements of one shard, including padding. Stage 3 cuts a tensor into `num_ranks`
/// equal shards.
constexpr int64_t shard_numel(int64_t numel, int64_t num_ranks) {
  return (numel + num_ranks - 1) / num_ranks;
}

/// Returns which elements of a flat tensor lie in a rank's shard. The rest of the shard is padding.
inline Interval shard_elements(int64_t numel, int64_t num_ranks, int64_t rank) {
  const int64_t shard = shard_numel(numel, num_ranks);
  return {std::min(rank * shard, numel), std::min((rank + 1) * shard, numel)};
}

}  // namespace deepspeed
