// The parameters of a model as ZeRO sees them: trainable ones in groups, each group flat in one buffer that
// the parameters are views of. The model's tensors keep their identity; only their data moves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/tensor/named_tensor.h"
#include "deepspeed/zero/layout/partition.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/shards/param_home.h"
#include "deepspeed/zero/shards/shard.h"

namespace deepspeed::zero {

/// Parameters of one optimizer group, in the order in which they were given.
struct StoredGroup {
  std::vector<NamedTensor> params;
  FlatLayout layout;
  // The model's dtype; in a model of fp32 a group's parameters may be fp64.
  at::ScalarType dtype = at::kFloat;
  // (layout.padded_numel()) in that dtype; the parameters are views of it. At stage 3 it has this rank's
  // shards alone, where the store's home is; undefined where that is a disk.
  at::Tensor flat;
};

class ParamStore {
 public:
  struct Options {
    at::ScalarType dtype =
        at::kFloat;  // of the model's parameters: fp32 (or fp64 where they are), fp16 or bf16
    bool round_robin = false;
    int stage = 0;  // 0 to 2: what the ranks partition of the training state
  };

  /// Casts and flattens the groups' parameters in place; in fp64 all of a group, or none, are. Throws
  /// UsageError, naming the parameter, where it is not a dense floating point tensor, is not on the device of
  /// the others, or stands in two groups.
  ParamStore(std::vector<std::vector<NamedTensor>> groups, int world_size, const Options& options);
  virtual ~ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Which parts of the training state each rank has a partition of; other ones are whole on every rank.
  int stage() const { return stage_; }
  bool partitions_states() const { return stage_ >= 1; }
  bool partitions_gradients() const { return stage_ >= 2; }
  bool partitions_parameters() const { return stage_ == 3; }

  std::vector<StoredGroup>& groups() { return groups_; }
  const std::vector<StoredGroup>& groups() const { return groups_; }
  std::vector<FlatLayout> layouts() const;
  /// The dtype that the model's parameters were cast to. kFloat also means not cast: then some may be fp64.
  at::ScalarType dtype() const { return dtype_; }
  bool has_doubles() const;
  /// Device and dtype of most parameters as operators see them, and so of their gradients.
  at::TensorOptions options() const;
  /// Device and dtype of a group's parameters, and so of their gradients.
  at::TensorOptions options(size_t group) const { return options().dtype(groups_[group].dtype); }
  /// The dtype of a group's masters: fp32, or fp64 where the parameters are.
  at::ScalarType master_dtype(size_t group) const {
    return groups_[group].dtype == at::kDouble ? at::kDouble : at::kFloat;
  }
  /// Bytes of the parameters that lie in memory.
  virtual int64_t bytes() const;
  /// The name of a parameter that set_data(), torch::load() or Module::to() has given other memory since,
  /// where no update reaches the model. Nothing where there is none.
  virtual std::optional<std::string> name_of_replaced() const;

  /// Copies rank `root`'s values to all ranks.
  virtual void broadcast(const comm::ProcessGroup& group, int root);

  /// Stage 3: how the shards of a group lie in its `flat`. Null at other stages.
  virtual const ShardLayout* shards(size_t) const { return nullptr; }
  virtual ParamHome home() const { return ParamHome::kDevice; }
  /// Stage 3: this rank's shard of a group's parameter; null for one without elements.
  virtual std::shared_ptr<Shard> shard(size_t, size_t) const { return nullptr; }
  /// Stage 3: bytes of the shards on a disk.
  virtual int64_t disk_bytes() const { return 0; }
  /// Stage 3: bytes of the memory through which shards on a disk pass.
  virtual int64_t buffer_bytes() const { return 0; }
  /// Stage 3: before elements of the group's flat tensor are written, waits until no device copies from them.
  virtual void wait_for_reads(size_t, const Interval&) const {}
  /// Stage 3: waits for shards that were started to be written. Throws IoError, on this rank alone.
  virtual void finish_writes() {}
  /// Stage 3: drops what is whole of the parameters after their shards were updated. Talks to no rank.
  virtual void shards_changed() {}
  /// Returns the group's parameters that somebody but the optimizer has written since the last call. In-place
  /// writes count as autograd counts them, so writes through `.data` do not. At stage 3 writes in a
  /// GatheredParameters and loads count.
  virtual std::vector<size_t> take_externally_written(size_t group);

 protected:
  /// Of stage 3.
  explicit ParamStore(at::ScalarType dtype) : dtype_(dtype), stage_(3) {}

 private:
  at::ScalarType dtype_;
  int stage_;
  std::vector<StoredGroup> groups_;
  std::vector<std::vector<int64_t>>
      versions_;  // [group][parameter] when take_externally_written() looked; not at stage 3
};

}  // namespace deepspeed::zero
