// Stores a model's parameters for stage 3. This rank holds one shard of each in its group's flat space
// (shard_layout.h). The pool (gather_pool.h) makes them whole.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/shards/shard_home.h"

namespace deepspeed::zero {

class ShardStore : public ParamStore {
 public:
  using Storages = std::vector<std::shared_ptr<PartitionedStorage>>;

  struct Options {
    at::ScalarType dtype = at::kFloat;  // the model's: fp32 (or fp64 for fp64 parameters), fp16 or bf16
    int64_t sub_group_numel = 1'000'000'000;
    GatherPoolOptions pool;
    ShardHomeOptions home = {};
  };

  /// Partitions the parameters of a built model in place, one after the other. They get rank 0's values,
  /// cast. If a zero::Init or an earlier store has partitioned them, only the shards move. The tensors keep
  /// their identity and sizes. frozen: parameters that no optimizer updates; they are partitioned too, but
  /// are in no group. Collective.
  /// Throws UsageError naming the parameter if it is not a dense floating point tensor, shares memory with
  /// another one, is in two groups, or belongs to another live engine. Throws CommError. All ranks throw
  /// IoError if one cannot place its shards, e.g. on a full disk.
  ShardStore(std::vector<std::vector<NamedTensor>> groups, std::vector<NamedTensor> frozen,
             const ZeroGroups& ranks, const Options& options);
  /// Leaves the parameters partitioned; another store may take them over.
  ~ShardStore() override;

  const std::shared_ptr<GatherPool>& pool() const { return pool_; }
  /// Returns the storages of a group's parameters; null for those without elements.
  const Storages& storages(size_t group) const { return storages_[group]; }
  const std::vector<NamedTensor>& frozen() const { return frozen_; }

  int64_t bytes() const override;
  std::optional<std::string> name_of_replaced() const override;
  const ShardLayout* shards(size_t group) const override { return &layouts_[group]; }
  ParamHome home() const override { return home_; }
  std::shared_ptr<Shard> shard(size_t group, size_t param) const override;
  int64_t disk_bytes() const override { return file_ ? file_->file_bytes() : 0; }
  int64_t buffer_bytes() const override { return file_ ? file_->buffer_bytes() : 0; }
  void wait_for_reads(size_t group, const Interval& interval) const override;
  void finish_writes() override;
  void shards_changed() override;
  std::vector<size_t> take_externally_written(size_t group) override;
  /// Does nothing: the parameters have rank 0's values from the start.
  void broadcast(const comm::ProcessGroup&, int) override {}

 private:
  Storages partition(const std::vector<NamedTensor>& params, const ShardLayout& layout,
                     const std::vector<std::shared_ptr<Shard>>& shards, at::ScalarType dtype);
  void partition_whole(const std::vector<NamedTensor>& params, size_t first, size_t end,
                       const ShardLayout& layout, const std::vector<std::shared_ptr<Shard>>& shards,
                       at::ScalarType dtype, Storages& storages);

  const ZeroGroups ranks_;
  ParamHome home_;
  std::shared_ptr<GatherPool> pool_;
  std::shared_ptr<ShardFile> file_;   // holds shards on a disk
  std::vector<ShardLayout> layouts_;  // [group]
  std::vector<Storages> storages_;    // [group]
  std::vector<NamedTensor> frozen_;
  Storages frozen_storages_;
};

}  // namespace deepspeed::zero
