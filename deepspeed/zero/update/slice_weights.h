// The model's weights that a slice of the optimizer updates. They are in a group's flat tensor, or in shards,
// some of which are on a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/shards/shard.h"

namespace deepspeed::zero {

class SliceWeights {
 public:
  /// Selects the elements `interval` of the group's flat space. At stage 3 it is the space of this rank's
  /// shards. If shards are on a disk, the interval must hold whole shards. `store` must outlive this object.
  SliceWeights(const ParamStore& store, size_t group, const Interval& interval);

  /// Returns the weights, (n), shared with the model; undefined if some are on a disk.
  const at::Tensor& memory() const { return memory_; }
  /// Copies the elements `part` to `values`: (part), on any device, of any dtype. part: relative to the
  /// interval. If some shards are on a disk, the part must hold whole shards. Throws IoError naming the
  /// parameter.
  void read(const Interval& part, const at::Tensor& values) const;
  /// Waits until no device copies from memory(). Call it before the host writes that memory.
  void wait_for_reads() const { store_.wait_for_reads(group_, interval_); }
  /// Writes `values`, (n) on any device, of any dtype, to the weights. Those on a disk are complete after the
  /// store's finish_writes(). Throws IoError naming the parameter.
  void write(const at::Tensor& values) const;

 private:
  struct Placed {
    Interval in_slice;
    std::shared_ptr<Shard> shard;
  };

  const ParamStore& store_;
  size_t group_;
  Interval interval_;
  at::Tensor memory_;
  std::vector<Placed> shards_;  // used if memory_ is undefined
};

}  // namespace deepspeed::zero
