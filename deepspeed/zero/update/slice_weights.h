// The model's weights that a slice of the optimizer updates, wherever they lie: in a group's flat tensor, or
// in shards of which some are on a disk.
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
  /// `store` must outlive it. Elements `interval` of the group's flat space, or at stage 3 of that of this
  /// rank's shards; where these are on a disk, of whole ones.
  SliceWeights(const ParamStore& store, size_t group, const Interval& interval);

  /// (n), shared with the model; undefined where a part of them is on a disk.
  const at::Tensor& memory() const { return memory_; }
  /// Copies the elements `part` to `values`: (part), of any device and dtype. Throws IoError, naming the
  /// parameter.
  void read(const Interval& part, const at::Tensor& values) const;
  /// Before memory() is written by the host: waits until no device copies from it.
  void wait_for_reads() const { store_.wait_for_reads(group_, interval_); }
  /// Takes values: (n), of any device and dtype. Those on a disk are there after the store's finish_writes().
  /// Throws IoError, naming the parameter.
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
  std::vector<Placed> shards_;  // where there is no such memory
};

}  // namespace deepspeed::zero
