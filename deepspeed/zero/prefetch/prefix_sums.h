// Sums of the first elements of a changing list: a binary indexed tree. Each call takes steps logarithmic in
// the list's length. After P. M. Fenwick, "A new data structure for cumulative frequency tables" (1994).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepspeed::zero {

class PrefixSums {
 public:
  /// Makes a list of zeros.
  explicit PrefixSums(size_t size = 0) : tree_(size + 1, 0) {}

  size_t size() const { return tree_.size() - 1; }
  void add(size_t index, int64_t value) {
    for (size_t node = index + 1; node < tree_.size(); node += lowest_bit(node)) tree_[node] += value;
  }
  /// Returns the sum of the elements below `index`.
  int64_t before(size_t index) const {
    int64_t sum = 0;
    for (size_t node = index; node > 0; node -= lowest_bit(node)) sum += tree_[node];
    return sum;
  }
  /// Returns the first index whose inclusive sum exceeds `limit`; size() if there is none. Neither elements
  /// nor limit may be negative.
  size_t first_above(int64_t limit) const {
    size_t index = 0;
    for (size_t step = std::bit_floor(size() | 1); step > 0; step /= 2) {
      if (index + step > size() || tree_[index + step] > limit) continue;
      index += step;
      limit -= tree_[index];
    }
    return index;
  }

 private:
  static size_t lowest_bit(size_t node) { return node & (~node + 1); }

  std::vector<int64_t> tree_;  // node n has the sum of the lowest_bit(n) elements up to n - 1
};

}  // namespace deepspeed::zero
