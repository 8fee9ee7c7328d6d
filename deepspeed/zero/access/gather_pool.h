// What is whole of the partitioned parameters of a model, over one group of ranks: gathers on use, releases,
// access windows and limits.
//
// Gathers are collective, and every rank releases by the same rules: what was used least recently goes where
// the limit is reached, and everything goes when the last access window closes. So ranks that use the same
// parameters in the same order gather the same ones; those that do not get an error within seconds that names
// the parameters (comm/watch/call_subject.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/config/zero/sections.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/zero/access/gather_bucket.h"
#include "deepspeed/zero/access/live_set.h"
#include "deepspeed/zero/access/partitioned_storage.h"
#include "deepspeed/zero/access/unit_table.h"
#include "deepspeed/zero/prefetch/ahead_window.h"
#include "deepspeed/zero/prefetch/coordinator.h"

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
  bool is_provisional = false;   // of a zero::Init, whose parameters initialize() takes over
};

/// Any thread may call.
class GatherPool : public std::enable_shared_from_this<GatherPool> {
 public:
  GatherPool(comm::ProcessGroup shard_group, const GatherPoolOptions& options);

  /// The ranks over which the parameters are partitioned.
  const comm::ProcessGroup& shard_group() const { return shard_group_; }
  /// These ranks, and those that have the same parameters once more: what one writes, all of them get.
  const comm::ProcessGroup& all_ranks() const {
    return options_.all_ranks ? options_.all_ranks : shard_group_;
  }
  bool is_provisional() const { return options_.is_provisional; }
  /// The engine of its parameters is gone, or lets go of them: they stay partitioned, may be used in access
  /// windows, and be taken over by another engine. Talks to no rank.
  void abandon() noexcept;
  bool is_abandoned() const;
  /// Whether no engine has its parameters.
  bool is_free() const { return is_provisional() || is_abandoned(); }

  /// Partitions `param`, whose values are in the shards of all ranks already: its data goes, and comes back
  /// while operators use it. shard: (ceil(numel / world size)); its type becomes the parameter's, which lies
  /// on `device` from here on (default: its own). The parameter has at least one element.
  std::shared_ptr<PartitionedStorage> partition(const at::Tensor& param, std::string name,
                                                std::shared_ptr<Shard> shard,
                                                std::optional<at::Device> device = {});

  /// From here on these parameters are gathered together, as soon as one of them is used, and released
  /// together. name: for errors, the same on all ranks. Returns the unit's number, from 1 on. Throws
  /// UsageError where one of them is in a unit already.
  size_t join(std::string name, const std::vector<std::shared_ptr<PartitionedStorage>>& members);
  /// `call` gets the number of a unit that a backward has used for the last time, as far as one knows from
  /// earlier ones; at the same place among the gathers on all ranks. It must not use the pool.
  void on_unit_done(std::function<void(size_t unit)> call);

  /// Use is legal while a window is open. Windows nest; the outermost says what kind of pass it is.
  void open_window(AccessMode mode = AccessMode::kAny);
  /// With the last one everything is released that is not persistent, that no operator uses, and that a
  /// backward does not use soon.
  void close_window();

  /// From here on persistent parameters may be read outside of windows too, while they are whole.
  void let_read_persistent();
  /// Makes all persistent parameters whole where let_read_persistent() was called, so that they may be read
  /// between a step and the next forward too; else does nothing. Collective.
  void gather_persistent();

  /// A module begins whose own parameter it is: it is whole until end_module(), as if one operator used it
  /// for so long. Collective. Returns false, having done nothing, where it is in a unit, which is gathered
  /// where a pass arrives at it. Throws UsageError outside of access windows.
  bool begin_module(PartitionedStorage& storage);
  /// What the pass does not use again soon goes at once, in a pass without a trace all of it.
  void end_module(PartitionedStorage& storage);

  /// Gathers it, if it is not whole, and keeps it so until drop_hold(); collective. Its use is legal
  /// meanwhile, and writing it where `writable` says so. Throws UsageError where somebody else may write it.
  void hold(PartitionedStorage& storage, bool writable);
  /// At the end of a writable hold: rank `modifier_rank`'s values become those of all ranks; collective.
  void write_back(PartitionedStorage& storage, int modifier_rank);
  /// Leaves its present values to the other tensors over the storage of the held `param`, as ordinary memory.
  /// Does nothing inside of a pass.
  void leave_to_aliases(PartitionedStorage& storage, const at::Tensor& param);
  /// forget_writes: what was written and not written back goes, on this rank alone.
  void drop_hold(PartitionedStorage& storage, bool forget_writes) noexcept;

  /// The caller changed the shard: what is whole of it is stale.
  void shard_changed(PartitionedStorage& storage);
  /// This rank's shard of `values` (of the parameter's sizes, any dtype and device) becomes its shard. Talks
  /// to no rank: all ranks call it with the same values.
  void set_values(PartitionedStorage& storage, const at::Tensor& values);
  /// This rank's shard takes `values` (its elements, of any dtype and device; what is left out at its end is
  /// padding). Talks to no rank: what is whole on other ranks stays, so all of them set their shards.
  void set_shard(PartitionedStorage& storage, const at::Tensor& values);
  /// Throws UsageError where set_values() would not take any values now.
  void check_settable(const PartitionedStorage& storage) const;
  /// Whether write_back() or set_values() changed the shard since the last call.
  bool take_was_set(PartitionedStorage& storage);

  /// Throws UsageError, naming the parameter, where an operator or a GatheredParameters has it.
  void check_unused(const PartitionedStorage& storage) const;
  /// Makes an ordinary tensor of `param` again, over `storage`, with all its values; the storage is of no use
  /// from here on. Collective. Throws UsageError as check_unused(), CommError, IoError.
  void give_back(const std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>& params);

  /// Releases what no operator uses and nobody holds, persistent parameters as well.
  void empty_cache();
  /// Until resume(), the shards are not where they were: nothing of them may be used, and `why` says so.
  /// Throws UsageError where a parameter is in use or held.
  void suspend(std::string why);
  void resume();

  /// Elements that are whole or on their way, of parameters and of copies.
  int64_t live_numel() const;

 private:
  friend class PartitionedStorage;
  using State = PartitionedStorage::State;

  State state_of(const PartitionedStorage& storage) const;
  void begin_use(PartitionedStorage& storage, const std::string& op, bool writes);
  void end_use(PartitionedStorage& storage);
  std::shared_ptr<StorageRecord> cast(PartitionedStorage& storage, at::ScalarType dtype);
  /// Its storage is gone.
  void forget(PartitionedStorage& storage) noexcept;
  /// Forgets it, and its place in a unit: it is being destroyed.
  void note_destroyed(PartitionedStorage& storage) noexcept;

  // Under the lock.
  void check_not_suspended(const PartitionedStorage& storage) const;
  void check_use(const PartitionedStorage& storage, const std::string& op, bool writes) const;
  void make_whole(PartitionedStorage& storage);
  /// Does so with the values of the shards themselves, where passes get rounded ones.
  void make_exactly_whole(PartitionedStorage& storage);
  bool is_quantized_for_passes(const PartitionedStorage& storage) const;
  /// The persistent parameters of which nothing is there, in an order that all ranks have.
  std::vector<PartitionedStorage*> missing_persistent() const;
  void start_gather(PartitionedStorage& storage, bool exact = false);
  /// Of one dtype: small ones by one collective, large ones each by its own. exact: not quantized.
  void start_gathers(const std::vector<PartitionedStorage*>& wanted, bool exact = false);
  /// How a parameter comes: over which ranks, and in which form.
  struct Route {
    bool is_near = false;  // from its secondary part, over the secondary group
    Fetch fetch = Fetch::kAllGather;
    auto operator<=>(const Route&) const = default;
  };
  Route route_of(const PartitionedStorage& storage, bool exact) const;
  void start_together(const std::vector<PartitionedStorage*>& gathered,
                      std::vector<std::shared_ptr<Shard>> shards, const Route& route);
  /// Whether a secondary part of its present values is there, on all ranks.
  static bool has_secondary(const PartitionedStorage& storage);
  /// Keeps this rank's secondary part of what was gathered, where there is none of its present values.
  void keep_secondary(PartitionedStorage& storage) const;
  void set_gathering(PartitionedStorage& storage, at::Tensor whole);
  std::string subject_of(const std::vector<PartitionedStorage*>& storages) const;
  AheadWindow make_window(int64_t max_numel, bool holds_next,
                          AheadSlots::Item (*item)(const PartitionedStorage&));
  static AheadSlots::Item item_to_gather(const PartitionedStorage& storage);
  static AheadSlots::Item item_to_read(const PartitionedStorage& storage);
  void set_state(PartitionedStorage& storage, State state);
  /// Its shards have other values.
  void note_new_version(PartitionedStorage& storage);
  void close_look_ahead();
  /// Starts the gathers of what is used next, and its reads from a disk, as far as there is room.
  void look_ahead();
  void prefetch();
  void read_ahead();
  /// Of what a further evaluation begins with.
  void read_for_next_pass();
  /// Starts reading its shard from a disk; false where there is no room.
  static bool start_read(const PartitionedStorage& storage);
  void finish_gather(PartitionedStorage& storage);
  /// The unit of a parameter, or of a copy's parameter.
  GatherUnit* unit_of(const PartitionedStorage& storage) const;
  /// Whether its use says nothing new: its unit was used last, or a GatheredParameters has it, of which one
  /// rank alone may do something with it.
  bool stays_in_unit(const PartitionedStorage& storage) const;
  /// It is used next, after what was used before.
  void arrive_at(PartitionedStorage& storage);
  void leave(GatherUnit& unit);
  void gather(GatherUnit& unit);
  /// Of keys in a trace, in their order: of a unit all; of a copy that is not made yet none.
  std::vector<PartitionedStorage*> storages_of(const std::vector<uint64_t>& keys) const;
  /// What it takes of stage3_max_live_parameters: nothing for a copy of a unit's parameter, of which ranks
  /// have different ones.
  int64_t counted_numel(const PartitionedStorage& storage) const;
  void set_whole(PartitionedStorage& storage, at::Tensor whole);
  void give_back_one(const at::Tensor& param, PartitionedStorage& storage);
  void abandon_gather(PartitionedStorage& storage) noexcept;
  void make_room(int64_t numel);
  /// A copy whose source changed since it was made.
  static bool is_stale(const PartitionedStorage& storage);
  bool is_free_to_go(const PartitionedStorage& storage) const;
  /// It is, and nothing will use it soon.
  bool is_done(const PartitionedStorage& storage) const;
  bool stays_for_backward(const PartitionedStorage& storage) const;
  /// The shard to send: of a copy, the source's.
  static const std::shared_ptr<Shard>& current_shard(const PartitionedStorage& storage);
  /// Whether what is whole of it is its shard itself, which cannot be stale.
  bool is_its_shard(const PartitionedStorage& storage) const;
  void release(PartitionedStorage& storage);
  void drop(PartitionedStorage& storage) noexcept;
  void release_all();
  /// It is whole or on its way, the most recently used one; or is no more.
  void add_live(PartitionedStorage& storage);
  void remove_live(PartitionedStorage& storage) noexcept;
  void note_used(PartitionedStorage& storage);

  const comm::ProcessGroup shard_group_;
  const GatherPoolOptions options_;
  // Recursive: the last handle to a copy may go while a gather of another one runs on the same thread.
  mutable std::recursive_mutex mutex_;
  int num_windows_ = 0;
  int64_t persistent_numel_ = 0;
  uint64_t num_params_ = 0;
  std::string suspended_;  // why; "": it is not
  bool is_abandoned_ = false;
  bool lets_read_persistent_ = false;
  Coordinator coordinator_;
  AheadWindow to_gather_;
  AheadWindow to_read_;  // from a disk
  GatherBuffers buffers_;
  std::optional<device::SideStream> copies_;  // of shards that do not lie with their parameters
  std::unordered_map<uint64_t, PartitionedStorage*> by_key_;  // the latest of each
  LiveSet<PartitionedStorage> live_;
  UnitTable units_;
  std::function<void(size_t)> on_unit_done_;
};

}  // namespace deepspeed::zero
