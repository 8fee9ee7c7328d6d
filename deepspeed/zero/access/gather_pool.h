// The partitioned parameters of a model over one group of ranks. The pool is the way in and out for all who
// use them: operators, modules, GatheredParameters and the optimizer.
//
// Three parts do the work: LookAhead says what comes next, Gatherer makes parameters whole, and LiveParams
// says what is whole and what may go.
//
// Gathers are collective, and every rank releases by the same rules: what was used least recently goes where
// the limit is reached, and everything goes when the last access window closes. So ranks that use the same
// parameters in the same order gather the same ones. Those that do not get an error within seconds that names
// the parameters (comm/watch/call_subject.h).
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
#include "deepspeed/zero/access/gatherer.h"
#include "deepspeed/zero/access/live_params.h"
#include "deepspeed/zero/access/look_ahead.h"
#include "deepspeed/zero/access/param_table.h"
#include "deepspeed/zero/access/partitioned_storage.h"

namespace deepspeed::zero {

struct GatherPoolOptions {
  config::ParamGatherConfig keys = {};
  // All ranks that have the parameters, where several shard groups have them once each; without a group:
  // those of the shard group.
  comm::ProcessGroup all_ranks = {};
  comm::NodeGroups nodes = {};  // of the shard group, for gathers in two steps; without groups: in one
  // Ranks of the shard group that keep what a gather brought once more between them, each a part, until the
  // shards change; their number divides that of the shard group. Without a group: none do.
  comm::ProcessGroup secondary_group = {};
  int64_t read_ahead_numel = 0;  // elements whose shards are read from a disk ahead of their gathers
  // It belongs to a zero::Init, and initialize() takes its parameters over. Until then reads outside of
  // windows gather.
  bool is_provisional = false;
};

/// Any thread may call.
class GatherPool : public std::enable_shared_from_this<GatherPool> {
 public:
  GatherPool(comm::ProcessGroup shard_group, const GatherPoolOptions& options);

  /// The ranks over which the parameters are partitioned.
  const comm::ProcessGroup& shard_group() const { return ranks_.shard_group(); }
  /// These ranks, and those that have the same parameters once more: what one writes, all of them get.
  const comm::ProcessGroup& all_ranks() const {
    return options_.all_ranks ? options_.all_ranks : shard_group();
  }
  /// Says that the engine of its parameters is gone, or lets go of them. They stay partitioned, may be used
  /// in access windows, and another engine may take them over. Talks to no rank.
  void abandon() noexcept;
  bool is_abandoned() const;
  /// Whether no engine has its parameters.
  bool is_free() const { return options_.is_provisional || is_abandoned(); }

  /// Partitions `param`, whose values are in the shards of all ranks already: its data goes, and comes back
  /// while operators use it. shard: (ceil(numel / world size)); its type becomes the parameter's, which lies
  /// on `device` from here on (default: its own). The parameter has at least one element.
  std::shared_ptr<PartitionedStorage> partition(const at::Tensor& param, std::string name,
                                                std::shared_ptr<Shard> shard,
                                                std::optional<at::Device> device = {});
  /// Makes a copy in another dtype, which needs no data now. Returns null where the copy is to be an ordinary
  /// tensor.
  std::shared_ptr<PartitionedStorage> make_copy(PartitionedStorage& source, at::ScalarType dtype);
  /// Forgets a parameter or a copy whose storage is gone.
  void forget(Gatherable& param) noexcept;
  /// Gathers these parameters together from here on, as soon as one of them is used, and releases them
  /// together. name: for errors, the same on all ranks. Returns the unit's number, from 1 on. Throws
  /// UsageError where one of them is in a unit already.
  size_t join(std::string name, const std::vector<std::shared_ptr<PartitionedStorage>>& members);
  /// Calls `call` with the number of a unit that a backward has used for the last time, as far as one knows
  /// from earlier ones. All ranks do so at the same place among the gathers. It must not use the pool.
  void on_unit_done(std::function<void(size_t unit)> call);

  /// Opens a window, in which reads are legal. Windows nest; the outermost says what kind of pass it is.
  void open_window(AccessMode mode = AccessMode::kAny);
  /// Closes a window. With the last one everything is released that is not persistent, that no operator uses,
  /// and that a backward does not use soon.
  void close_window();

  /// Begins a use: the parameter is whole until end_use(), since `op` reads or writes it. Collective where it
  /// is partitioned. Throws UsageError where that is not allowed, CommError, IoError; then no end_use()
  /// follows.
  void begin_use(Gatherable& param, const std::string& op, bool writes);
  void end_use(Gatherable& param);
  /// Begins a module whose own parameter it is, as if one operator used it until end_module(). Returns false,
  /// having done nothing, where it is in a unit: that is gathered where a pass arrives at it. Throws as
  /// begin_use().
  bool begin_module(PartitionedStorage& storage);
  /// Ends it. What the pass does not use again soon goes at once, in a pass without a trace all of it.
  void end_module(PartitionedStorage& storage);

  /// Allows uses of persistent parameters outside of windows too, while they are whole. What an operator
  /// writes goes into the shard at once. Ranks compare it where they meet next (compare_writes).
  void let_use_persistent();
  /// Makes all persistent parameters whole where let_use_persistent() was called, so that they may be used
  /// between a step and the next forward too; else does nothing. Collective.
  void gather_persistent();

  /// Makes it whole until drop_hold(); collective. Its use is legal meanwhile. writable: write_back() may end
  /// it. Throws UsageError for a second hold that is writable.
  void hold(Gatherable& param, bool writable);
  /// Ends the writes of a hold: rank `modifier_rank`'s values become those of all ranks; collective.
  void write_back(Gatherable& param, int modifier_rank);
  /// Leaves its present values to the other tensors over the storage of the held `tensor`, as ordinary
  /// memory. Does nothing inside of a pass.
  void leave_to_aliases(Gatherable& param, const at::Tensor& tensor);
  /// Ends a hold. forget_writes: what was written and not written back goes, on this rank alone. With the
  /// last hold goes what was written without a writable one; the first time a warning says so.
  void drop_hold(Gatherable& param, bool writable, bool forget_writes) noexcept;
  /// Says once that what was written to the parameter `name` without a modifier_rank is lost.
  void warn_of_lost_write(const std::string& name) noexcept;

  /// Says that the caller changed the shard: what is whole of it is stale.
  void shard_changed(PartitionedStorage& storage);
  /// Sets this rank's shard to its part of `values`, which have the parameter's sizes and any dtype and
  /// device. Talks to no rank: all ranks call it with the same values.
  void set_values(PartitionedStorage& storage, const at::Tensor& values);
  /// Sets this rank's shard to `values`: its elements, of any dtype and device; what is left out at its end
  /// is padding. Talks to no rank: what is whole on other ranks stays, so all of them set their shards.
  void set_shard(PartitionedStorage& storage, const at::Tensor& values);
  /// Throws UsageError where set_values() would not take any values now.
  void check_settable(const PartitionedStorage& storage) const;
  /// Compares what ranks have written outside of windows, if this rank has; collective then. A rank that has
  /// not meets none here, and the ranks' calls differ. Throws UsageError, naming the parameter, where they
  /// wrote different values; each rank's part then is what it wrote.
  void compare_writes();
  /// Returns whether somebody but the optimizer has changed the shard since the last call.
  bool take_externally_written(PartitionedStorage& storage);

  /// Throws UsageError, naming the parameter, where an operator or a GatheredParameters has it.
  void check_unused(const PartitionedStorage& storage) const;
  /// Makes an ordinary tensor of `param` again, over `storage`, with all its values. The storage is of no use
  /// from here on. Collective. Throws UsageError as check_unused(), CommError, IoError.
  void give_back(const std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>& params);

  /// Releases what no operator uses and nobody holds, persistent parameters as well.
  void empty_cache();
  /// Forbids all use until resume(), since the shards are not where they were; `why` says so. Throws
  /// UsageError where a parameter is in use or held.
  void suspend(std::string why);
  void resume();

  /// Returns the elements that are whole or on their way, of parameters and of copies.
  int64_t live_numel() const;
  Gatherable::State state_of(const Gatherable& param) const;

 private:
  // The caller holds the lock.
  void check_use(const Gatherable& param, const std::string& op, bool writes) const;
  bool is_usable_anywhere(const Gatherable& param) const;
  void arrive_at(Gatherable& param);
  void leave(GatherUnit& unit);
  void gather(GatherUnit& unit);
  /// Whether what is whole of it is its shard itself, which cannot be stale.
  bool is_its_shard(const Gatherable& param) const;
  void note_new_version(Gatherable& param);
  /// Prepares for a write of which nothing may stay.
  void spoil(Gatherable& param);
  void end_spoilt(Gatherable& param);
  /// Takes over what an operator has written outside of windows.
  void take_write(Gatherable& param);
  void give_back_one(const at::Tensor& tensor, Gatherable& param);

  const GatherPoolOptions options_;
  // Recursive: the last handle to a copy may go while a gather of another one runs on the same thread.
  mutable std::recursive_mutex mutex_;
  GatherRanks ranks_;
  ParamTable params_;
  LookAhead look_ahead_;
  LiveParams live_;
  Gatherer gatherer_;
  int num_windows_ = 0;
  bool is_forward_ = false;  // the outermost window, of an engine that trains
  int64_t persistent_numel_ = 0;
  bool is_abandoned_ = false;
  bool lets_use_persistent_ = false;
  std::vector<std::weak_ptr<StorageRecord>> rewritten_;  // outside of windows, not compared yet
  bool has_warned_of_lost_write_ = false;
  std::function<void(size_t)> on_unit_done_;
};

}  // namespace deepspeed::zero
