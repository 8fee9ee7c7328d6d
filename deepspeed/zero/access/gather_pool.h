// The partitioned parameters of a model over one group of ranks. All uses go through the pool: by operators,
// modules, GatheredParameters and the optimizer.
//
// It has three parts. LookAhead says what comes next, Gatherer makes parameters whole, and LiveParams tracks
// what is whole and what may be released.
//
// Gathers are collective, and every rank releases by the same rules: the least recently used first when the
// limit is reached, and all that need not stay when the last access window closes. Ranks that use the same
// parameters in the same order therefore gather the same ones. If their orders differ, an error follows
// within seconds and names the parameters (comm/watch/call_subject.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/access/gather_ranks.h"
#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/access/gatherer.h"
#include "deepspeed/zero/access/live_params.h"
#include "deepspeed/zero/access/look_ahead.h"
#include "deepspeed/zero/access/param_table.h"
#include "deepspeed/zero/storage/holdable_storage.h"

namespace deepspeed::zero {

class PartitionedStorage;

struct GatherPoolOptions {
  config::ParamGatherConfig keys = {};
  // All ranks that have the parameters, if several shard groups hold a copy each. Undefined: those of the
  // shard group.
  comm::ProcessGroup all_ranks = {};
  comm::NodeGroups nodes = {};  // of the shard group, for gathers in two steps; undefined: in one
  // Ranks of the shard group that together keep a second copy of gathered parameters until the shards change,
  // each a part. Their number divides that of the shard group. Undefined: there is no second copy.
  comm::ProcessGroup secondary_group = {};
  int64_t read_ahead_numel = 0;  // elements of shards read from a disk ahead of their gathers
  // The pool belongs to a zero::Init, and initialize() will take its parameters over. Until then, operators
  // that read parameters outside of access windows gather them.
  bool is_provisional = false;
};

/// Gathers partitioned parameters when they are used, and releases them. Thread-safe.
class GatherPool : public std::enable_shared_from_this<GatherPool> {
 public:
  GatherPool(comm::ProcessGroup shard_group, const GatherPoolOptions& options);

  /// Returns the ranks over which the parameters are partitioned.
  const comm::ProcessGroup& shard_group() const { return ranks_.shard_group(); }
  /// Returns the shard group's ranks and those that hold further copies of the shards. Writes reach all of
  /// them.
  const comm::ProcessGroup& all_ranks() const {
    return options_.all_ranks ? options_.all_ranks : shard_group();
  }
  /// Notes that the parameters' engine ended or gave them up. Parameters stay partitioned, may be used in
  /// access windows, and another engine may take them over. Does not communicate.
  void abandon() noexcept;
  bool is_abandoned() const;
  /// Returns whether no engine owns the parameters.
  bool is_free() const { return options_.is_provisional || is_abandoned(); }

  /// Partitions `param`, whose values are already in the shards of all ranks. Its data is dropped, and
  /// returns while operators use it. shard: this rank's, ceil(numel / shard group's size) elements; its dtype
  /// becomes the parameter's. device: the parameter's device afterwards (default: its own). The parameter
  /// must have at least one element.
  std::shared_ptr<PartitionedStorage> partition(const at::Tensor& param, std::string name,
                                                std::shared_ptr<Shard> shard,
                                                std::optional<at::Device> device = {});
  /// Makes a copy of a parameter in another dtype, gathered when it is used. Returns null if the caller must
  /// make an ordinary tensor instead. This is so if `source` is persistent, held by a GatheredParameters, or
  /// itself a copy.
  std::shared_ptr<PartitionedStorage> make_copy(PartitionedStorage& source, at::ScalarType dtype);
  /// Forgets a parameter or a copy whose storage is gone.
  void forget(Gatherable& param) noexcept;
  /// Joins `members`, the parameters of a leaf module, into a unit. The first use of one gathers all of them,
  /// and they are released together. name: the unit's name in errors, the same on all ranks. Returns the
  /// unit's number, from 1 on. Throws UsageError if a member is already in a unit.
  size_t join(std::string name, const std::vector<std::shared_ptr<PartitionedStorage>>& members);
  /// Sets a function that is called with a unit's number after the unit's last use in a backward. Earlier
  /// backwards tell which use is the last. All ranks call the function at the same place among the gathers.
  /// The function must not use the pool.
  void on_unit_done(std::function<void(size_t unit)> call);

  /// Opens an access window, in which operators may read parameters. Windows nest; the outermost one's `mode`
  /// is the kind of pass.
  void open_window(AccessMode mode = AccessMode::kAny);
  /// Closes a window. The last one releases all parameters that are not persistent, not in use, and not
  /// needed soon by a backward. Throws UsageError if none is open.
  void close_window();

  /// Makes the parameter whole until end_use(), since the operator `op` uses it. Collective if the parameter
  /// is partitioned. Throws UsageError if the use is not allowed. Throws CommError and IoError. After an
  /// error no end_use() follows.
  void begin_use(Gatherable& param, const std::string& op, bool writes);
  void end_use(Gatherable& param);
  /// Keeps the parameter whole while its module runs, until end_module(). Returns false and does nothing if
  /// the parameter is in a unit (see join()). Throws as begin_use() does.
  bool begin_module(PartitionedStorage& storage);
  /// Ends begin_module(). Releases the parameter unless the pass is known to use it again soon.
  void end_module(PartitionedStorage& storage);

  /// Allows uses of whole persistent parameters outside of windows. What an operator writes goes into the
  /// shard at once. Ranks compare the writes later (compare_writes).
  void let_use_persistent();
  /// Makes all persistent parameters whole, for use between a step and the next forward. Does nothing while
  /// suspended, or unless let_use_persistent() was called. Collective.
  void gather_persistent();

  /// Makes the parameter whole until drop_hold(), with exact values unless an operator is using rounded ones.
  /// Allows uses of the parameter meanwhile. writable: write_back() may send what is written to all ranks.
  /// Throws UsageError while suspended, and if the parameter's storage is gone, as after set_data(). Throws
  /// UsageError for a writable hold of a copy, of rounded values, or inside another writable hold. Throws as
  /// compare_writes() does. Throws CommError and IoError. Collective.
  void hold(Gatherable& param, bool writable);
  /// Gives all ranks the values that rank `modifier_rank` of all_ranks() wrote in a hold. Collective.
  void write_back(Gatherable& param, int modifier_rank);
  /// Turns other tensors over the storage of `tensor`, the held parameter, into ordinary ones with its
  /// current values. Does nothing while an access window is open or an operator uses the parameter.
  void leave_to_aliases(Gatherable& param, const at::Tensor& tensor);
  /// Ends a hold that was begun with `writable`. forget_writes: drops, on this rank only, what was written
  /// and not sent by write_back(). The end of the last hold drops what was written without a writable hold; a
  /// warning says so the first time.
  void drop_hold(Gatherable& param, bool writable, bool forget_writes) noexcept;
  /// Warns once that a write to the parameter `name` without a modifier_rank is lost.
  void warn_of_lost_write(const std::string& name) noexcept;

  /// Notes that the caller changed the shard, which makes gathered values stale.
  void shard_changed(PartitionedStorage& storage);
  /// Sets this rank's shard to its part of `values`, those of the whole parameter in any dtype and on any
  /// device. Does not communicate, so all ranks call it with the same values.
  void set_values(PartitionedStorage& storage, const at::Tensor& values);
  /// Sets this rank's shard to `values`, the shard's elements in any dtype and on any device. Padding may be
  /// left out. Does not communicate: gathered values on other ranks stay, so all ranks set their shards.
  void set_shard(PartitionedStorage& storage, const at::Tensor& values);
  /// Throws UsageError if set_values() is not allowed now.
  void check_settable(const PartitionedStorage& storage) const;
  /// Compares what ranks have written outside of windows. Collective if this rank has written anything; if
  /// another rank has not, the ranks' calls differ and that is an error. Throws UsageError naming the
  /// parameter if ranks wrote different values. Each rank's shard then holds what that rank wrote.
  void compare_writes();
  /// Returns whether the shard was changed other than by the optimizer since the last call.
  bool take_externally_written(PartitionedStorage& storage);

  /// Throws UsageError while suspended, or if an operator or a GatheredParameters is using the parameter.
  void check_unused(const PartitionedStorage& storage) const;
  /// Turns the parameters into ordinary tensors with all their values. The storages must not be used
  /// afterwards. Collective. Throws as check_unused() and compare_writes() do. Throws CommError and IoError.
  void give_back(const std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>& params);

  /// Releases all that is whole, persistent parameters too. What is in use or held stays, as do copies that
  /// were written. Calls compare_writes().
  void empty_cache();
  /// Forbids all use until resume(), because the shards are moved elsewhere. why: the reason, for errors.
  /// Throws UsageError if a parameter is in use or held.
  void suspend(std::string why);
  void resume();

  /// Returns how many elements of parameters are whole or being gathered. Copies in another dtype count too,
  /// except copies of parameters in units: ranks may have different ones.
  int64_t live_numel() const;
  Gatherable::State state_of(const Gatherable& param) const;

 private:
  // The caller holds the lock.
  void check_use(const Gatherable& param, const std::string& op, bool writes) const;
  bool is_usable_anywhere(const Gatherable& param) const;
  void arrive_at(Gatherable& param);
  void leave(GatherUnit& unit);
  void gather(GatherUnit& unit);
  /// Returns whether the gathered data is the shard itself, which cannot be stale.
  bool is_its_shard(const Gatherable& param) const;
  void note_new_version(Gatherable& param);
  /// Prepares a write under holds that are not writable. Saves the data that must return when the last hold
  /// ends.
  void spoil(Gatherable& param);
  void end_spoilt(Gatherable& param);
  /// Copies this rank's part of the whole into its shard. Called after an operator has written the whole
  /// outside of access windows.
  void take_write(Gatherable& param);
  void give_back_one(const at::Tensor& tensor, Gatherable& param);

  const GatherPoolOptions options_;
  // Recursive: the last handle to a copy may go during another copy's gather on the same thread.
  mutable std::recursive_mutex mutex_;
  GatherRanks ranks_;
  ParamTable params_;
  LookAhead look_ahead_;
  LiveParams live_;
  Gatherer gatherer_;
  int num_windows_ = 0;
  bool is_forward_ = false;  // the outermost window belongs to a training engine's forward
  int64_t persistent_numel_ = 0;
  bool is_abandoned_ = false;
  bool lets_use_persistent_ = false;
  std::vector<std::weak_ptr<StorageRecord>> rewritten_;  // written outside of windows, not compared yet
  bool has_warned_of_lost_write_ = false;
  std::function<void(size_t)> on_unit_done_;
};

/// Stores one partitioned parameter, or a low-precision copy. This rank has a shard; the whole is gathered
/// from the shards of all ranks while operators use it. GatherPool makes this object. Thread-safe.
class PartitionedStorage final : public HoldableStorage,
                                 public std::enable_shared_from_this<PartitionedStorage> {
 public:
  using State = Gatherable::State;

  /// Makes the storage of a parameter. See Gatherable for the arguments.
  PartitionedStorage(std::shared_ptr<GatherPool> pool, std::string name, int64_t numel, at::Device device,
                     std::shared_ptr<Shard> shard, PartitionedTraits traits)
      : pool_(std::move(pool)), param_(std::move(name), numel, device, std::move(shard), traits) {}
  /// Makes the storage of a copy of `source` in another dtype.
  PartitionedStorage(const std::shared_ptr<PartitionedStorage>& source, at::ScalarType dtype)
      : pool_(source->pool_), param_(std::shared_ptr<Gatherable>(source, &source->param_), dtype) {}
  ~PartitionedStorage() override { pool_->forget(param_); }

  const std::string& name() const override { return param_.name; }
  int64_t numel() const { return param_.numel; }
  /// Returns the shard of a parameter; null for a copy.
  const std::shared_ptr<Shard>& shard() const { return param_.shard; }
  /// Returns whether the parameter stays whole after a gather until the shards change.
  bool is_persistent() const { return param_.traits.is_persistent; }
  const std::shared_ptr<GatherPool>& pool() const { return pool_; }
  State state() const { return pool_->state_of(param_); }
  /// Returns the pool's data about the parameter, guarded by the pool's lock.
  Gatherable& param() { return param_; }
  const Gatherable& param() const { return param_; }

  void begin_use(const std::string& op, bool writes) override { pool_->begin_use(param_, op, writes); }
  void end_use() override { pool_->end_use(param_); }
  std::shared_ptr<StorageRecord> cast(at::ScalarType dtype) override {
    return pool_->make_copy(*this, dtype);
  }
  void on_storage_lost() noexcept override { pool_->forget(param_); }
  std::string text_where_empty() const override;

  const comm::ProcessGroup& group() const override { return pool_->all_ranks(); }
  bool was_written() const override { return param_.was_written; }
  void hold(bool writable) override { pool_->hold(param_, writable); }
  void warn_of_lost_write() noexcept override { pool_->warn_of_lost_write(param_.name); }
  void write_back(int modifier_rank) override { pool_->write_back(param_, modifier_rank); }
  void leave_to_aliases(const at::Tensor& param) override { pool_->leave_to_aliases(param_, param); }
  void drop_hold(bool writable, bool forget_writes) noexcept override {
    pool_->drop_hold(param_, writable, forget_writes);
  }

 private:
  const std::shared_ptr<GatherPool> pool_;
  Gatherable param_;
};

/// Returns the storage of a partitioned parameter or copy, or of its view. Null for other tensors.
inline std::shared_ptr<PartitionedStorage> partitioned_storage_of(const at::Tensor& tensor) {
  return std::dynamic_pointer_cast<PartitionedStorage>(record_of(tensor));
}

}  // namespace deepspeed::zero
