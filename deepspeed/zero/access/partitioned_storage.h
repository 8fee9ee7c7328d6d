// The storage of one partitioned parameter, or of a low-precision copy. This rank holds a shard, and the
// whole is gathered from the shards of all ranks while operators use it.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class GatherPool;

/// Connects a parameter to the pool that gathers it. The pool makes this object and does its work.
/// Thread-safe.
class PartitionedStorage final : public HoldableStorage,
                                 public std::enable_shared_from_this<PartitionedStorage> {
 public:
  using State = Gatherable::State;

  /// Makes the storage of a parameter. See Gatherable for the arguments.
  PartitionedStorage(std::shared_ptr<GatherPool> pool, std::string name, int64_t numel, at::Device device,
                     std::shared_ptr<Shard> shard, PartitionedTraits traits);
  /// Makes the storage of a copy of `source` in another dtype.
  PartitionedStorage(const std::shared_ptr<PartitionedStorage>& source, at::ScalarType dtype);
  ~PartitionedStorage() override;

  const std::string& name() const override { return param_.name; }
  int64_t numel() const { return param_.numel; }
  /// Returns the shard of a parameter; null for a copy.
  const std::shared_ptr<Shard>& shard() const { return param_.shard; }
  /// Returns whether the parameter stays whole after a gather until the shards change.
  bool is_persistent() const { return param_.traits.is_persistent; }
  const std::shared_ptr<GatherPool>& pool() const { return pool_; }
  State state() const;
  /// Returns the pool's data about the parameter, guarded by the pool's lock.
  Gatherable& param() { return param_; }
  const Gatherable& param() const { return param_; }

  void begin_use(const std::string& op, bool writes) override;
  void end_use() override;
  std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) override;
  void on_storage_lost() noexcept override;
  std::string text_where_empty() const override;

  const comm::ProcessGroup& group() const override;
  bool was_written() const override { return param_.was_written; }
  void hold(bool writable) override;
  void warn_of_lost_write() noexcept override;
  void write_back(int modifier_rank) override;
  void leave_to_aliases(const at::Tensor& param) override;
  void drop_hold(bool writable, bool forget_writes) noexcept override;

 private:
  const std::shared_ptr<GatherPool> pool_;
  Gatherable param_;
};

}  // namespace deepspeed::zero
