// Launches buckets in their static order while gradients arrive in any order: pure bookkeeping.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "deepspeed/zero/gradients/buckets/bucket.h"

namespace deepspeed::zero {

class LaunchOrder {
 public:
  /// `params_per_group`: number of parameters of each group. `is_gated`, by bucket (empty: none): buckets
  /// that only open_gate() completes, whichever gradients arrive.
  LaunchOrder(const std::vector<Bucket>& buckets, const std::vector<size_t>& params_per_group,
              std::vector<bool> is_gated = {});

  /// Notes that a parameter's gradient has arrived. A second one of the same parameter in one backward
  /// changes nothing.
  void mark_arrived(size_t group, size_t param);
  void open_gate(size_t bucket) { is_open_[bucket] = true; }
  /// Returns the bucket that holds a parameter; empty for a parameter without elements.
  std::optional<size_t> bucket_of(size_t group, size_t param) const;
  /// Returns whether the parameter's bucket was launched.
  bool was_launched(size_t group, size_t param) const;
  /// Returns the index of the next bucket to launch. After the last it is the number of buckets.
  size_t next() const { return next_; }
  /// Returns the next bucket and moves on, if all its gradients have arrived. A gated bucket needs only its
  /// open gate. Otherwise, and after the last bucket, returns nothing.
  std::optional<size_t> take_complete();
  /// Returns the next bucket and moves on, complete or not. Returns nothing after the last.
  std::optional<size_t> take_any();
  /// Restores the state before a backward.
  void reset();

 private:
  std::vector<std::vector<size_t>> bucket_of_;  // [group][param]; kNone for parameters without elements
  std::vector<size_t> sizes_;
  std::vector<size_t> missing_;
  std::vector<bool> is_gated_;
  std::vector<bool> is_open_;
  std::vector<std::vector<bool>> arrived_;
  size_t next_ = 0;
};

}  // namespace deepspeed::zero
