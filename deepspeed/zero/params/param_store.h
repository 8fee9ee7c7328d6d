// Stores a model's trainable parameters for ZeRO. Each group is one flat buffer, and its parameters are views
// of it. The model's tensors keep their identity; only their data moves.
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

/// Holds the parameters of one optimizer group, in the given order.
struct StoredGroup {
  std::vector<NamedTensor> params;
  FlatLayout layout;
  // The model's dtype. In an fp32 model a group may have fp64 parameters.
  at::ScalarType dtype = at::kFloat;
  // (layout.padded_numel()) in that dtype; the parameters are views of it. At stage 3 it holds only this
  // rank's shards, in the memory that is the store's home; undefined if that is a disk.
  at::Tensor flat;

  /// Returns a view of a parameter's elements in the flat tensor `of_group`, in its shape.
  at::Tensor part_of(const at::Tensor& of_group, size_t param) const {
    const Interval place = layout.place(param);
    return of_group.narrow(0, place.begin, place.numel()).view(params[param].tensor.sizes());
  }
};

class ParamStore {
 public:
  struct Options {
    at::ScalarType dtype = at::kFloat;  // the model's: fp32 (or fp64 for fp64 parameters), fp16 or bf16
    bool round_robin = false;
    int stage = 0;  // 0 to 2: what the ranks partition of the training state
  };

  /// Casts and flattens the groups' parameters in place. A group is all fp64 or has no fp64 parameters.
  /// Throws UsageError naming the parameter if it is not a dense floating point tensor, is on another device
  /// than the others, or is in two groups.
  ParamStore(std::vector<std::vector<NamedTensor>> groups, int world_size, const Options& options);
  virtual ~ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Tell which parts of the training state are partitioned; other parts are whole on every rank.
  int stage() const { return stage_; }
  bool partitions_states() const { return stage_ >= 1; }
  bool partitions_gradients() const { return stage_ >= 2; }
  bool partitions_parameters() const { return stage_ == 3; }

  std::vector<StoredGroup>& groups() { return groups_; }
  const std::vector<StoredGroup>& groups() const { return groups_; }
  std::vector<FlatLayout> layouts() const;
  /// Returns the dtype to which the parameters were cast. kFloat stands for a model that was not cast, with
  /// fp32 parameters and perhaps fp64 ones.
  at::ScalarType dtype() const { return dtype_; }
  bool has_doubles() const;
  /// Returns the device of the parameters and their gradients, and dtype(). Groups of fp64 parameters have
  /// options(group) instead.
  at::TensorOptions options() const;
  /// Returns the device and dtype of a group's parameters and of their gradients.
  at::TensorOptions options(size_t group) const { return options().dtype(groups_[group].dtype); }
  /// Returns the dtype of a group's masters: fp32, or fp64 for fp64 parameters.
  at::ScalarType master_dtype(size_t group) const {
    return groups_[group].dtype == at::kDouble ? at::kDouble : at::kFloat;
  }
  /// Returns the bytes of the parameters that are in memory.
  virtual int64_t bytes() const;
  /// Returns the name of a parameter, if any, that has got other memory. set_data(), torch::load() and
  /// Module::to() give parameters other memory, and updates then no longer reach the model.
  virtual std::optional<std::string> name_of_replaced() const;

  /// Copies rank `root`'s values of all parameters to all ranks of `group`.
  virtual void broadcast(const comm::ProcessGroup& group, int root);

  /// Returns how a group's shards lie in its `flat` (stage 3). Null at other stages.
  virtual const ShardLayout* shards(size_t) const { return nullptr; }
  virtual ParamHome home() const { return ParamHome::kDevice; }
  /// Returns this rank's shard of a parameter (stage 3). Null if it has no elements.
  virtual std::shared_ptr<Shard> shard(size_t, size_t) const { return nullptr; }
  /// Returns the bytes of shards on a disk (stage 3).
  virtual int64_t disk_bytes() const { return 0; }
  /// Returns the bytes of the buffers for shards on a disk (stage 3).
  virtual int64_t buffer_bytes() const { return 0; }
  /// Waits until no device copies from this interval of the group's flat tensor (stage 3). Call it before
  /// writing there.
  virtual void wait_for_reads(size_t, const Interval&) const {}
  /// Waits for writes of shards that were started (stage 3). Throws IoError, only on this rank.
  virtual void finish_writes() {}
  /// Drops the gathered parameters after their shards were updated (stage 3). Does not communicate.
  virtual void shards_changed() {}
  /// Returns a group's parameters (indices) written since the last call, except by the optimizer. In-place
  /// writes count if autograd counts them, so writes through `.data` do not. At stage 3 loads and writes in a
  /// GatheredParameters count.
  virtual std::vector<size_t> take_externally_written(size_t group);

 protected:
  /// Makes the base of a stage 3 store.
  explicit ParamStore(at::ScalarType dtype) : dtype_(dtype), stage_(3) {}

 private:
  at::ScalarType dtype_;
  int stage_;
  std::vector<StoredGroup> groups_;
  std::vector<std::vector<int64_t>>
      versions_;  // [group][parameter] at the last take_externally_written(); not at stage 3
};

}  // namespace deepspeed::zero
