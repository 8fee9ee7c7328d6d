// How the gradients of a bucket lie in the buffer in which they travel, which part of it each rank gets, and
// where that part goes in what this rank keeps.
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

/// This rank's part of a bucket.
struct PartOfBucket {
  Interval in_buffer;
  Interval in_kept;  // of the gradients that this rank keeps of the group
};

class BucketSpace {
 public:
  virtual ~BucketSpace() = default;

  /// Elements of the buffer.
  virtual int64_t numel(const Bucket& bucket) const = 0;
  /// Whether a parameter's gradient that is a bucket of its own lies as in a buffer already.
  virtual bool is_as_in_parameter() const = 0;
  // buffer: (numel(bucket)); param: an index of bucket.params; gradient: dense, of the parameter's sizes.
  // What is put is there when `copies` is flushed.
  virtual void put(const Bucket& bucket, size_t param, const at::Tensor& gradient, const at::Tensor& buffer,
                   CopyBatch& copies) const = 0;
  virtual void add(const Bucket& bucket, size_t param, const at::Tensor& gradient,
                   const at::Tensor& buffer) const = 0;
  void put_zeros(const Bucket& bucket, size_t param, const at::Tensor& buffer) const;
  /// Returns the gradient of each of the bucket's parameters: contiguous, or (rows, n) of contiguous rows.
  std::vector<at::Tensor> gradients(const Bucket& bucket, const at::Tensor& buffer) const;
  /// Returns which interval of the buffer each rank gets, by rank, ascending.
  virtual std::vector<Interval> owned(const Bucket& bucket) const = 0;
  virtual PartOfBucket own_part(const Bucket& bucket) const = 0;

 private:
  /// Returns the part of the buffer that a parameter's gradient has, with padding, as gradients() gives it.
  virtual at::Tensor place(const Bucket& bucket, size_t param, const at::Tensor& buffer) const = 0;
};

/// Makes the space that fits how the store partitions: flat order, or at stage 3 each rank's shards together.
/// owned: what this rank keeps of each group. `store` must outlive it.
std::unique_ptr<BucketSpace> make_bucket_space(const ParamStore& store, const comm::ProcessGroup& shard_group,
                                               std::vector<Interval> owned);

}  // namespace deepspeed::zero
