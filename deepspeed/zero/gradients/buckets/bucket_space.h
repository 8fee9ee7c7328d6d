// Lays gradients out in the buffer of their bucket. It says which part each rank gets, and the place of this
// rank's part among the gradients that it keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/buckets/bucket.h"
#include "deepspeed/zero/gradients/buckets/copy_batch.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Describes this rank's part of a bucket.
struct PartOfBucket {
  Interval in_buffer;
  Interval in_kept;  // among the gradients that this rank keeps of the group
};

class BucketSpace {
 public:
  virtual ~BucketSpace() = default;

  /// Returns the number of elements of the bucket's buffer, with padding.
  virtual int64_t numel(const Bucket& bucket) const = 0;
  /// Returns whether a lone parameter's gradient can serve as its buffer, without a copy.
  virtual bool is_as_in_parameter() const = 0;
  // buffer: (numel(bucket)); param: an index in bucket.params; gradient: dense, of the parameter's sizes.
  // What put() writes is in the buffer after copies.flush().
  virtual void put(const Bucket& bucket, size_t param, const at::Tensor& gradient, const at::Tensor& buffer,
                   CopyBatch& copies) const = 0;
  virtual void add(const Bucket& bucket, size_t param, const at::Tensor& gradient,
                   const at::Tensor& buffer) const = 0;
  void put_zeros(const Bucket& bucket, size_t param, const at::Tensor& buffer) const;
  /// Returns a view of the buffer for each of bucket.params. It is contiguous, or (ranks, shard) with padding
  /// at stage 3.
  std::vector<at::Tensor> gradients(const Bucket& bucket, const at::Tensor& buffer) const;
  /// Returns each rank's interval of the buffer, by rank, in ascending order.
  virtual std::vector<Interval> owned(const Bucket& bucket) const = 0;
  virtual PartOfBucket own_part(const Bucket& bucket) const = 0;

 private:
  /// Returns a parameter's part of the buffer, with padding, shaped as in gradients().
  virtual at::Tensor place(const Bucket& bucket, size_t param, const at::Tensor& buffer) const = 0;
};

/// Makes the space that fits the store's partition. Gradients lie in flat order; at stage 3 each rank's
/// shards lie together. owned: the interval of each group that this rank keeps. `store` must outlive the
/// space.
std::unique_ptr<BucketSpace> make_bucket_space(const ParamStore& store, const comm::ProcessGroup& shard_group,
                                               std::vector<Interval> owned);

}  // namespace deepspeed::zero
