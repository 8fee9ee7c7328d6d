// The buckets of a model, the places of gradients in them, and the progress of their launches. All follows
// only from the partition and the options, so all ranks launch the same collectives in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/buckets/bucket.h"
#include "deepspeed/zero/gradients/buckets/bucket_space.h"
#include "deepspeed/zero/gradients/buckets/launch_order.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

class BucketPlan {
 public:
  /// owned: the interval of each group that this rank keeps. `store` and `options` must outlive this object.
  BucketPlan(const ParamStore& store, const comm::ProcessGroup& shard_group, const ReducerOptions& options,
             std::vector<Interval> owned);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const Bucket& bucket(size_t index) const { return buckets_[index]; }
  const BucketSpace& space() const { return *space_; }
  LaunchOrder& order() { return order_; }
  /// Replaces the buckets by others of at most `numel` elements, or a single larger parameter. Throws
  /// UsageError below 1.
  void lay_out(int64_t numel);
  /// Lets the buckets of a unit (ParamUnits) be launched, even if gradients are missing.
  void open_gates(size_t unit);

 private:
  std::vector<Bucket> make(int64_t numel) const;
  LaunchOrder make_order() const;

  const ParamStore& store_;
  const ReducerOptions& options_;
  std::unique_ptr<BucketSpace> space_;
  std::vector<Bucket> buckets_;
  LaunchOrder order_;
};

}  // namespace deepspeed::zero
