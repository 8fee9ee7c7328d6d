// What this rank's optimizer owns: an interval of each group, cut into slices, with their masters and states
// in the memory of the model's device, in the host's, or on a disk; and how checkpoints see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/offload/state_swapper.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/slice_plan.h"
#include "deepspeed/zero/update/slice_weights.h"
#include "deepspeed/zero/update/state_slice.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// A part of what is owned of a group, stepped at one time.
struct Slice {
  Interval interval;  // of the owned interval
  SlicePlan plan;
  std::vector<optim::Segment> segments;
  std::unique_ptr<optim::CutParameters> cut;  // null where nothing can be cut
  // Its master is there during a step alone where the weights are the masters. Of split masters it is the
  // lower half, with the weights as the upper one.
  optim::FlatSlice flat;
  std::vector<Interval> stale;  // elements whose master is to follow the weights
};

class SliceSet {
 public:
  using Access = StateSwapper::Access;

  /// Makes the masters. `store` and `optimizer` must outlive it. accumulation_dtype: of the gradients that
  /// slices are stepped by; absent: the weights' own. Throws IoError where offloading to a disk cannot write
  /// masters: on this rank alone.
  SliceSet(ParamStore& store, optim::Optimizer& optimizer, const comm::ProcessGroup& shard_group,
           const StepOptions& options, std::optional<at::ScalarType> accumulation_dtype);

  /// In the group's flat space; at stage 3 in that of this rank's shards.
  Interval owned(size_t group) const { return owned_[group]; }
  /// The parameters that meet a part of the owned interval, in order.
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const;

  // For steps. Slices of one group follow those of the group before.
  size_t size() const { return slices_.size(); }
  const Slice& operator[](size_t index) const { return slices_[index]; }
  std::vector<size_t> all() const;
  /// Whether steps write nothing of the model's weights but by the optimizer's own kernels.
  bool are_stepped_in_place() const;
  /// Calls `work` with each of them, those on a disk one at a time, after the others. What `work` changes of
  /// these lasts with Access::kChange. Throws IoError.
  void for_each(const std::vector<size_t>& indices, Access access, const std::function<void(Slice&)>& work);
  SliceWeights weights_of(const Slice& slice) const { return weights_at(slice, slice.interval); }
  /// A copy of the slice's weights, in memory where it is stepped.
  at::Tensor copy_of_weights(const Slice& slice) const {
    return copy_of(weights_of(slice), slice, slice.interval.numel());
  }
  /// Memory for `numel` weights of the slice, where it is stepped.
  at::Tensor empty_weights(const Slice& slice, int64_t numel) const;
  /// Of the slice's weights.
  at::ScalarType dtype_of(const Slice& slice) const { return store_.groups()[slice.flat.group].dtype; }
  /// Finds parameters that were written from outside since the last call. Their masters follow before the
  /// next step, read or change. Split masters of whole parameters follow by themselves.
  void note_written_weights();
  /// Corrects those elements of the master that were noted. Before a slice is stepped or shown.
  void follow_weights(size_t index) { follow_weights(slices_[index], Access::kChange); }
  void follow_weights(Slice& slice, Access access) const;

  // For checkpoints and inspections.
  /// Calls `visit` with the slices of the group that meet the part of the owned interval; with kRead what it
  /// writes to a slice that is on a disk is lost. Throws IoError.
  void visit(size_t group, const Interval& part, Access access, const VisitSlice& visit) {
    this->visit(group, part, access, Shown::kAll, visit);
  }
  /// Names and types of the states of the part, without elements, and the step, where some of it is on a
  /// disk.
  std::optional<optim::SliceState> state_on_disk(size_t group, const Interval& part) const;
  /// Masters and states of the part. Throws IoError.
  GroupState state(size_t group, const Interval& part) { return state(group, part, Shown::kAll); }
  /// As state(), but the master is undefined where it would have to be joined of halves.
  GroupState states_beside_masters(size_t group, const Interval& part) {
    return state(group, part, Shown::kResident);
  }
  /// What is kept of each slice of the group that is in memory, as it lies there: masters are fp32, the lower
  /// halves of split ones, or undefined where the weights are the masters.
  std::vector<GroupState> resident_state(size_t group) const;
  /// Rounds the masters into the model's weights. Throws IoError.
  void write_weights();
  /// Makes the masters anew of the model's weights. Throws IoError.
  void read_weights();

  /// In memory.
  int64_t master_bytes() const;
  /// Of the memory through which slices pass from and to the disk, and on the disk.
  int64_t swap_buffer_bytes() const { return swapper_ ? swapper_->buffer_bytes() : 0; }
  int64_t disk_bytes() const { return swapper_ ? swapper_->file_bytes() : 0; }

 private:
  enum class Shown { kAll, kResident };

  SlicePlan plan_of(size_t group, bool is_offloaded) const;
  std::vector<Interval> cuts_of(size_t group) const;
  void add_slices(size_t group);
  void fill_in(Slice& slice, size_t group, const Interval& interval);
  void make_masters();
  std::vector<size_t> with_masters() const;
  std::vector<at::Tensor> swapped_tensors(size_t index) const;
  /// Of memory where the slice is stepped.
  at::TensorOptions options_at(const Slice& slice, at::ScalarType dtype) const;
  /// The weights of a part of the slice, counted as its interval is.
  SliceWeights weights_at(const Slice& slice, const Interval& part) const;
  at::Tensor copy_of(const SliceWeights& weights, const Slice& slice, int64_t numel) const;
  /// The weights become the masters of a part of the slice, counted from its begin.
  void take_weights(Slice& slice, const Interval& part) const;
  /// Weights become masters of a part of the slice where the masters do not round to them: an element that
  /// nobody wrote keeps what its master has beyond the weight.
  void follow_weights(Slice& slice, const Interval& part) const;

  // slice_set_state.cpp
  void visit(size_t group, const Interval& part, Access access, Shown shown, const VisitSlice& visit);
  void visit_split(Slice& slice, const Interval& part, Access access, Shown shown, const VisitSlice& visit);
  GroupState state(size_t group, const Interval& part, Shown shown);

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  const comm::ProcessGroup shard_group_;
  const StepOptions options_;
  const std::optional<at::ScalarType> accumulation_dtype_;
  std::vector<Interval> owned_;  // [group]
  std::deque<Slice> slices_;     // of one group after the other; the flat slices point to their segments
  std::unique_ptr<StateSwapper> swapper_;
};

}  // namespace deepspeed::zero
