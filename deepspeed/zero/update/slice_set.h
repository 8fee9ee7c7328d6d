// Holds what this rank's optimizer owns: an interval of each group, cut into slices, with masters and states.
// They are in the memory of the model's device, in host memory or on a disk. SliceSet also shows them to
// checkpoints.
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

/// Describes a part of a group's owned interval that the optimizer steps at once.
struct Slice {
  Interval interval;  // within the owned interval
  SlicePlan plan;
  std::vector<optim::Segment> segments;
  std::unique_ptr<optim::CutParameters> cut;  // null if no parameter can be cut
  // If the weights are the masters, flat.master is defined only during a step. With split masters it holds
  // only the lower 16 bits of the fp32 masters; the bf16 weights are the upper 16.
  optim::FlatSlice flat;
  std::vector<Interval> stale;  // elements whose master must follow the weights
};

class SliceSet {
 public:
  using Access = StateSwapper::Access;

  /// Cuts what this rank owns into slices, and makes their masters. `store` and `optimizer` must outlive this
  /// object. accumulation_dtype: of the slices' gradients; absent: the weights' own. Throws IoError, only on
  /// this rank, if masters cannot be written to the offload disk.
  SliceSet(ParamStore& store, optim::Optimizer& optimizer, const comm::ProcessGroup& shard_group,
           const StepOptions& options, std::optional<at::ScalarType> accumulation_dtype);

  /// Returns the owned interval in the group's flat space. At stage 3 it is the space of this rank's shards.
  Interval owned(size_t group) const { return owned_[group]; }
  /// Returns the pieces of parameters in `part` of the owned interval, in order.
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const;

  // For steps. Slices of one group follow those of the group before.
  size_t size() const { return slices_.size(); }
  const Slice& operator[](size_t index) const { return slices_[index]; }
  std::vector<size_t> all() const;
  /// Returns whether steps write the model's weights in place, only by the optimizer's kernels.
  bool are_stepped_in_place() const;
  /// Calls `work` with each of the slices `indices`. Slices on a disk come last, one at a time; their changes
  /// persist only with Access::kChange. Throws IoError.
  void for_each(const std::vector<size_t>& indices, Access access, const std::function<void(Slice&)>& work);
  SliceWeights weights_of(const Slice& slice) const { return weights_at(slice, slice.interval); }
  /// Returns a copy of the slice's weights in the memory in which it is stepped.
  at::Tensor copy_of_weights(const Slice& slice) const {
    return copy_of(weights_of(slice), slice, slice.interval.numel());
  }
  /// Allocates `numel` weights of the slice in the memory in which it is stepped.
  at::Tensor empty_weights(const Slice& slice, int64_t numel) const;
  /// Returns the dtype of the slice's weights.
  at::ScalarType dtype_of(const Slice& slice) const { return store_.groups()[slice.flat.group].dtype; }
  /// Finds parameters that were written from outside since the last call. Their masters follow before the
  /// next step, read or change. Split masters of whole parameters need no correction.
  void note_written_weights();
  /// Copies weights noted by note_written_weights() into the slice's master. Call it before the slice is
  /// stepped or shown.
  void follow_weights(size_t index) { follow_weights(slices_[index], Access::kChange); }
  void follow_weights(Slice& slice, Access access) const;

  // For checkpoints and inspection.
  /// Calls `visit` with the group's slices that overlap `part` of the owned interval. With kRead, what
  /// `visit` writes to a slice on a disk is lost. Throws IoError.
  void visit(size_t group, const Interval& part, Access access, const VisitSlice& visit) {
    this->visit(group, part, access, Shown::kAll, visit);
  }
  /// Returns the names, types and step count of the part's states on a disk, without reading their elements.
  /// Returns nothing unless a slice that overlaps `part` is on a disk.
  std::optional<optim::SliceState> state_on_disk(size_t group, const Interval& part) const;
  /// Returns masters and states of the part. Throws IoError.
  GroupState state(size_t group, const Interval& part) { return state(group, part, Shown::kAll); }
  /// Returns masters and states like state(), but leaves split masters undefined instead of joining them.
  GroupState states_beside_masters(size_t group, const Interval& part) {
    return state(group, part, Shown::kResident);
  }
  /// Returns what is in memory for the group's slices, as stored. Masters are fp32, the lower 16 bits of
  /// split ones, or undefined if the weights are the masters.
  std::vector<GroupState> resident_state(size_t group) const;
  /// Rounds the masters into the model's weights. Throws IoError.
  void write_weights();
  /// Makes the masters from the model's weights. Throws IoError.
  void read_weights();

  /// Returns the bytes of masters in memory.
  int64_t master_bytes() const;
  /// Returns the bytes of the buffers through which slices pass to and from the disk.
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
  /// Returns options for memory in which the slice is stepped.
  at::TensorOptions options_at(const Slice& slice, at::ScalarType dtype) const;
  /// Returns the weights of a part of the slice, in the coordinates of its interval.
  SliceWeights weights_at(const Slice& slice, const Interval& part) const;
  at::Tensor copy_of(const SliceWeights& weights, const Slice& slice, int64_t numel) const;
  /// Copies weights to masters in a part of the slice, relative to its begin.
  void take_weights(Slice& slice, const Interval& part) const;
  /// Copies weights to masters that do not round to them, in part of a slice. An element that was not written
  /// keeps its master's extra bits.
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
  std::deque<Slice> slices_;     // group by group; the flat slices point to their segments
  std::unique_ptr<StateSwapper> swapper_;
};

}  // namespace deepspeed::zero
