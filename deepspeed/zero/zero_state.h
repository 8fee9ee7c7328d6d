// Masters and optimizer states that this rank owns, for checkpoints, inspection and changes from outside.
// With super_offload, access between the backward at the accumulation boundary and step() throws UsageError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/zero/layout/partition.h"
#include "deepspeed/zero/update/state_slice.h"

namespace deepspeed::zero {

class EarlyStep;
class ParamStore;
class SliceSet;
struct ZeroGroups;
struct ZeroOptions;

class ZeroState {
 public:
  /// Makes the master weights. All arguments must outlive this object. Throws IoError on all ranks if masters
  /// cannot be written to the offload disk.
  ZeroState(ParamStore& store, optim::Optimizer& optimizer, const ZeroGroups& ranks,
            const ZeroOptions& options);
  ~ZeroState();
  ZeroState(const ZeroState&) = delete;
  ZeroState& operator=(const ZeroState&) = delete;

  /// Returns whether a 16-bit model has fp32 masters, split or not.
  bool has_master_weights() const;
  /// Returns whether the fp32 masters are split. The bf16 parameters are then their upper 16 bits, and only
  /// the lower 16 bits are kept separately. Changing a parameter changes its master, and the reverse.
  bool has_split_masters() const;
  /// Returns whether fp32 masters are not stored but made on request. They are joined from the two parts of
  /// split masters, or converted from 16-bit weights.
  bool makes_fp32_masters() const;

  /// Returns the interval of a group that this rank owns. It lies in the group's flat space, or at stage 3 in
  /// the flat space of this rank's shards.
  Interval owned(size_t group) const;
  /// Returns the pieces of parameters in the owned interval, or in `part` of it, in order. part: relative to
  /// the owned interval's begin, here and below.
  std::vector<ParamPiece> pieces(size_t group) const { return pieces(group, whole(group)); }
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const;

  /// Returns masters and states of the owned interval, or of `part` in it. Throws IoError, only on this rank,
  /// if they are on a disk that fails. Throws UsageError if a step was applied in part.
  GroupState of(size_t group) const { return of(group, whole(group)); }
  GroupState of(size_t group, const Interval& part) const;
  /// Returns masters and states as of() does, but leaves split masters undefined instead of joining them.
  GroupState beside_masters(size_t group, const Interval& part) const;
  /// Returns the weights that the optimizer updates: fp32, or 16-bit masters. Throws as of().
  at::Tensor master(size_t group) const { return of(group).master; }
  /// Returns the names, types and step count of states on a disk, without reading their elements. Returns
  /// nothing unless a slice that overlaps `part` is on a disk.
  std::optional<optim::SliceState> on_disk(size_t group, const Interval& part) const;
  /// Returns, for each of the group's slices in memory, masters and states as stored. Masters are fp32, the
  /// lower 16 bits of masters whose upper 16 are the bf16 weights, or undefined if the weights are the
  /// masters.
  std::vector<GroupState> resident(size_t group) const;
  /// Calls `visit` with each of the optimizer's slices that overlaps `part`. Slices in memory come first;
  /// those on a disk are loaded one at a time. Throws as of().
  void read(size_t group, const Interval& part, const VisitSlice& visit) const;

  /// Calls `visit` with each slice of the owned interval, and keeps what `visit` writes. Slices on a disk are
  /// in memory one at a time. Throws IoError, only on this rank.
  void change(size_t group, const VisitSlice& visit) { change(group, whole(group), visit); }
  /// Calls `visit` with the slices that overlap `part` of the owned interval; keeps changes. Throws IoError,
  /// only on this rank.
  void change(size_t group, const Interval& part, const VisitSlice& visit);
  /// Notes that all masters and states were loaded. Steps are allowed again if one had failed halfway.
  void was_loaded() {
    damage_.clear();
    ++num_loads_;
  }
  int64_t num_loads() const { return num_loads_; }
  /// Runs `work`, which reads or changes masters and states. If it fails on one rank, throws on all. All
  /// ranks call it. what: names the work in errors. Without offload to a disk the ranks do not communicate.
  void on_all_ranks(const char* what, const std::function<void()>& work) const;
  /// Rounds loaded masters into the model's weights and gathers all parameters. Collective. Throws IoError on
  /// all ranks.
  void publish_masters();
  /// Makes the masters from the model's weights, after weights were loaded without masters. Throws IoError,
  /// only on this rank.
  void restore_masters_from_model();

  /// Throws UsageError if backward has begun a step that step() must complete. Changes nothing.
  void check_no_step_has_begun() const;
  /// Throws UsageError if a step was applied in part and nothing was loaded since.
  void check_undamaged() const;

  // For the optimizer, which steps these slices.
  SliceSet& slices() { return *slices_; }
  const SliceSet& slices() const { return *slices_; }
  /// Returns the early step; null without super_offload.
  EarlyStep* early_step() const { return early_.get(); }
  /// Returns whether backward has begun a step that step() must complete.
  bool has_begun() const;
  bool uses_disk() const;
  /// Calls `step`, which runs a part of a step. If it throws, passes the error on; masters and states are
  /// unusable until was_loaded().
  void note_damage_of(int64_t step_number, const std::function<void()>& step);
  /// Gives up a step that backward began. Further steps throw UsageError until masters and states are loaded.
  void abandon_step();
  /// Sends updated weights from their owners to all ranks. Stage 3 gathers them when they are used.
  void gather_parameters();

 private:
  Interval whole(size_t group) const { return {0, owned(group).numel()}; }
  void check_whole() const;

  ParamStore& store_;
  const ZeroGroups& ranks_;
  const ZeroOptions& options_;
  std::unique_ptr<SliceSet> slices_;
  std::unique_ptr<EarlyStep> early_;  // null without super_offload
  int64_t num_loads_ = 0;
  std::string damage_;  // why a step was applied in part; empty: none was
};

}  // namespace deepspeed::zero
