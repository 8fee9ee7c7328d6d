// Half-open intervals of element indices, the vocabulary of every partition.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepspeed {

/// [begin, end), in elements.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t numel() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(const Interval& other) const { return other.begin >= begin && other.end <= end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The common part of both; empty (begin == end) where they do not meet.
inline Interval intersect(const Interval& a, const Interval& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace deepspeed
