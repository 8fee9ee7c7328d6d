// What the optimizer steps on this rank: the owned interval of each group, cut into slices, whose masters and
// states are in the memory of the model's device, in the host's, or on a disk.
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
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/offload/host_transfers.h"
#include "deepspeed/zero/offload/state_swapper.h"
#include "deepspeed/zero/offload/step_ahead.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/slice_plan.h"
#include "deepspeed/zero/update/slice_weights.h"
#include "deepspeed/zero/update/state_slice.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

class StepSlices {
 public:
  using Access = StateSwapper::Access;

  /// Makes the masters. `store` and `optimizer` must outlive it. accumulation_dtype: of the gradients that
  /// step() gets; absent: the weights' own. Throws IoError where offloading to a disk cannot write masters:
  /// on this rank alone.
  StepSlices(ParamStore& store, optim::Optimizer& optimizer, const comm::ProcessGroup& group,
             const StepOptions& options, std::optional<at::ScalarType> accumulation_dtype);

  /// In the group's flat space; at stage 3 in that of this rank's shards.
  Interval owned(size_t group) const { return owned_[group]; }
  /// The parameters that meet a part of the owned interval, in order.
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const;
  size_t size() const { return slices_.size(); }

  /// One update of all slices by the reducer's gradients, which are multiplied by `gradient_scale` first;
  /// writes the weights of the model. Throws IoError where the disk fails: then some slices are updated and
  /// others are not.
  void step(const GradReducer& reducer, double gradient_scale);

  // super_offload.
  /// For GradReducer::on_final(): gives the slices that are complete with the part to the worker.
  void step_ahead(GradReducer& reducer, const OwnedPart& part, double gradient_scale);
  /// Whether a step was begun, which step() completes: until then masters and states are neither old nor new.
  bool has_begun() const { return ahead_ && ahead_->has_begun(); }
  /// Throws UsageError where hyperparameters or weights were changed since it was begun.
  void check_unchanged_since_begin();
  /// sum += the squares of the group's gradients: one double on their device. Where a step was begun, its
  /// worker made it of what is begun.
  void add_squares(const GradReducer& reducer, size_t group, const at::Tensor& sum);
  /// Takes back what was begun.
  void take_back(const GradReducer& reducer, double gradient_scale);
  /// Forgets what was begun, which stays as far as it is: after step(), or in its place.
  void end_begun();
  /// Waits for the worker.
  void settle();
  /// Of the memory in which new weights wait for step().
  int64_t waiting_bytes() const;

  /// Calls `visit` with the slices of the group that meet the part of the owned interval; with kRead what it
  /// writes to a slice that is on a disk is lost. Throws IoError.
  void visit(size_t group, const Interval& part, Access access, const VisitSlice& visit) {
    this->visit(group, part, access, Shown::kAll, visit);
  }
  /// Names and types of the states of the part, without elements, and the step, where some of it is on a
  /// disk.
  std::optional<optim::SliceState> state_on_disk(size_t group, const Interval& part) const;
  /// That part. Throws IoError.
  GroupState state(size_t group, const Interval& part) { return state(group, part, Shown::kAll); }
  /// That part, its master undefined where it would have to be joined.
  GroupState states_beside_masters(size_t group, const Interval& part) {
    return state(group, part, Shown::kKept);
  }
  /// The weights of the model become the masters, rounded; or the other way round. Throws IoError.
  void write_weights();
  void read_weights();
  /// Notes which parameters somebody else changed (stage 3): their masters follow before anybody sees them.
  void note_written_shards();
  /// What is kept of each slice of the group that is in memory, as it lies there: masters are fp32, the lower
  /// halves of split ones, or undefined where the weights are the masters.
  std::vector<GroupState> kept(size_t group) const;

  /// In memory.
  int64_t master_bytes() const;
  /// Of the memory through which slices pass from and to the disk, and on the disk.
  int64_t swap_buffer_bytes() const { return swapper_ ? swapper_->buffer_bytes() : 0; }
  int64_t disk_bytes() const { return swapper_ ? swapper_->file_bytes() : 0; }

 private:
  struct Slice {
    Interval interval;  // of the owned interval
    SlicePlan plan;
    std::vector<optim::Segment> segments;
    std::unique_ptr<optim::CutParameters> cut;  // null where nothing can be cut
    // Its master lives for a step alone where the weights are the masters. Of split masters it is the lower
    // half, with the weights as the upper one.
    optim::FlatSlice flat;
    std::vector<Interval> stale;  // elements whose master is to follow the weights
    at::Tensor waiting;           // super_offload: of new 16-bit weights, until step(), if not the gradient's
  };

  SlicePlan plan_of(size_t group, bool is_offloaded) const;
  std::vector<Interval> cuts_of(size_t group) const;
  void add_slices(size_t group);
  void fill_in(Slice& slice, size_t group, const Interval& interval);
  /// Of the weights.
  at::ScalarType dtype_of(const Slice& slice) const { return store_.groups()[slice.flat.group].dtype; }
  /// Of memory where the slice is stepped.
  at::TensorOptions options_at(const Slice& slice, at::ScalarType dtype) const;
  void make_masters();

  SliceWeights weights_of(const Slice& slice) const { return weights_at(slice, slice.interval); }
  /// Those of a part of the slice, counted as its interval is.
  SliceWeights weights_at(const Slice& slice, const Interval& part) const;
  std::vector<at::Tensor> swapped_tensors(size_t index) const;
  /// Calls `work` with each of them, those on a disk one at a time.
  void for_each(const std::vector<size_t>& indices, Access access, const std::function<void(Slice&)>& work);
  std::vector<size_t> all() const;
  std::vector<size_t> with_masters() const;
  /// The weights become the masters of a part of the slice, counted from its begin.
  void take_weights(Slice& slice, const Interval& part) const;
  void follow_weights(Slice& slice, Access access) const;
  void expect_transfers(const GradReducer& reducer, const std::vector<size_t>& order);
  at::Tensor gradient_of(const Slice& slice, const GradReducer& reducer);
  /// Of weights of `numel` elements, where the slice is stepped.
  at::Tensor copy_of(const SliceWeights& weights, const Slice& slice, int64_t numel) const;
  at::Tensor memory_for_weights(const Slice& slice, const SliceWeights& weights);
  /// After a step: brings its new weights to where the model's are. updated: what memory_for_weights() gave.
  void pass_on_weights(const Slice& slice, const SliceWeights& weights, const at::Tensor& updated);
  enum class Shown { kAll, kKept };
  void visit(size_t group, const Interval& part, Access access, Shown shown, const VisitSlice& visit);
  void visit_split(Slice& slice, const Interval& part, Access access, Shown shown, const VisitSlice& visit);
  GroupState state(size_t group, const Interval& part, Shown shown);
  void step_slice(Slice& slice, const GradReducer& reducer, double gradient_scale);

  // step_slices_ahead.cpp
  void make_memory_for_waiting();
  StepAhead::Outcome step_in_worker(const Slice& slice, const at::Tensor& gradient, double gradient_scale);
  /// The slice as the worker steps it: its master where it is kept, the group's hyperparameters of then.
  optim::FlatSlice as_begun(const Slice& slice, const at::Tensor& gradient) const;
  /// In host memory; of the model's device a copy.
  at::Tensor in_host(const at::Tensor& tensor) const;
  /// The model's weights become what the slices were stepped to, one after the other as they are. Throws what
  /// a step has thrown.
  void publish_begun(const GradReducer& reducer);
  void publish(const Slice& slice, const GradReducer& reducer);

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  const comm::ProcessGroup group_;
  const StepOptions options_;
  const std::optional<at::ScalarType> accumulation_dtype_;
  std::vector<Interval> owned_;  // [group]
  std::deque<Slice> slices_;     // of one group after the other; the flat slices point to their segments
  HostTransfers transfers_;
  std::unique_ptr<StateSwapper> swapper_;
  device::SideStream worker_stream_;
  std::unique_ptr<StepAhead> ahead_;  // the last: its worker ends first
};

}  // namespace deepspeed::zero
