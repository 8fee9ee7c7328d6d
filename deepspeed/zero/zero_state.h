// Masters and optimizer states of what this rank owns, as checkpoints, inspections and changes from outside
// reach them. With super_offload there are none from the boundary's backward to step(): UsageError.
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
  /// Makes the masters. All arguments must outlive it. Throws IoError on all ranks where offloading to a disk
  /// cannot write masters.
  ZeroState(ParamStore& store, optim::Optimizer& optimizer, const ZeroGroups& ranks,
            const ZeroOptions& options);
  ~ZeroState();
  ZeroState(const ZeroState&) = delete;
  ZeroState& operator=(const ZeroState&) = delete;

  /// Whether masters are kept beside the parameters.
  bool has_master_weights() const;
  /// Whether the parameters are the upper halves of the masters, so that a change of one is a change of the
  /// other.
  bool has_split_masters() const;
  /// Whether fp32 masters are made where somebody asks for them, of halves or of 16-bit weights.
  bool makes_fp32_masters() const;

  /// The interval of a group that this rank owns: in the group's flat space; at stage 3 in that of this
  /// rank's shards.
  Interval owned(size_t group) const;
  /// The parameters that meet the owned interval, or a part of it (relative to its begin), in order.
  std::vector<ParamPiece> pieces(size_t group) const { return pieces(group, whole(group)); }
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const;

  /// Masters and states of the owned interval, or of a part of it. Throws IoError where they are on a disk
  /// that fails, on this rank alone; UsageError where a step was applied in part.
  GroupState of(size_t group) const { return of(group, whole(group)); }
  GroupState of(size_t group, const Interval& part) const;
  /// Masters and states as of() gives them, but where masters are kept as halves without them.
  GroupState beside_masters(size_t group, const Interval& part) const;
  /// Weights of the owned interval that the optimizer updates: fp32 but for 16-bit masters. Throws as of().
  at::Tensor master(size_t group) const { return of(group).master; }
  /// Names and types of the states, without elements, and the step, where a part of them is on a disk.
  std::optional<optim::SliceState> on_disk(size_t group, const Interval& part) const;
  /// What is kept of the group's slices in memory, as it lies there: masters are fp32, or the lower halves of
  /// split ones.
  std::vector<GroupState> resident(size_t group) const;
  /// Calls `visit` with each slice that meets the part, which are in memory one at a time where they are on a
  /// disk; first those that are not. Throws as of().
  void read(size_t group, const Interval& part, const VisitSlice& visit) const;

  /// Calls `visit` with each slice of the owned interval, which are in memory one at a time where they are on
  /// a disk: what it writes to their tensors stays. Throws IoError on this rank alone.
  void change(size_t group, const VisitSlice& visit) { change(group, whole(group), visit); }
  /// Changes the slices that meet a part of the owned interval, as change() does all of them.
  void change(size_t group, const Interval& part, const VisitSlice& visit);
  /// Tells that all of it was loaded: what a step that failed has left is gone.
  void was_loaded() {
    damage_.clear();
    ++num_loads_;
  }
  int64_t num_loads() const { return num_loads_; }
  /// Runs `work`, which reads or changes masters and states; where it fails on one rank, throws on all, which
  /// all call it. Without offloading to a disk no rank asks the others.
  void on_all_ranks(const char* what, const std::function<void()>& work) const;
  /// Copies the masters into the model's own dtype and gathers all parameters: after masters were loaded.
  /// Throws IoError on all ranks.
  void publish_masters();
  /// Makes the masters anew from the model's weights: after weights were loaded without masters. Throws
  /// IoError on this rank alone.
  void restore_masters_from_model();

  /// Throws UsageError where backward has begun a step that step() is to complete. Touches nothing.
  void check_no_step_has_begun() const;
  /// Throws UsageError where a step was applied in part and nothing was loaded since.
  void check_undamaged() const;

  // For the optimizer, which steps what this object shows.
  SliceSet& slices() { return *slices_; }
  const SliceSet& slices() const { return *slices_; }
  /// Null without super_offload.
  EarlyStep* early_step() const { return early_.get(); }
  /// Whether backward has begun a step that step() is to complete.
  bool has_begun() const;
  bool uses_disk() const;
  /// Runs a part of a step; what it throws leaves the step applied in part.
  void note_damage_of(int64_t step_number, const std::function<void()>& step);
  /// Gives up a step that backward began: until all was loaded, each further one is a UsageError.
  void abandon_step();
  /// Gives all ranks the weights that their owners have changed; at stage 3 they are gathered when they are
  /// used.
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
