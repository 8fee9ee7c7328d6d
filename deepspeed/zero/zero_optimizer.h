// What `initialize` returns as the optimizer: an optimizer over the part of the flat space that this rank
// owns (all of it at stage 0, one partition at stages 1 and 2, its shards at stage 3), with fp32 master
// weights, loss scaling and clipping around it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/gradients/grad_hooks.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/memory_bytes.h"
#include "deepspeed/zero/offload/optimizer_offload.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/early_step.h"
#include "deepspeed/zero/update/grad_norm.h"
#include "deepspeed/zero/update/partition_gather.h"
#include "deepspeed/zero/update/slice_set.h"
#include "deepspeed/zero/update/slice_stepper.h"
#include "deepspeed/zero/update/state_slice.h"
#include "deepspeed/zero/update/step_agreement.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// What each part of ZeRO is given; the stage is the store's.
struct ZeroOptions {
  ReducerOptions gradients;
  StepOptions update;
  config::PartitionGatherConfig gather;  // stages 1 and 2: of the updated parameters
};

/// Outcome of one step.
struct StepResult {
  bool applied = false;               // false: gradients were not finite, nothing changed
  std::optional<GradNorm> grad_norm;  // over all parameters, before clipping; none where not computed
};

class ZeroOptimizer {
 public:
  ZeroOptimizer(std::unique_ptr<ParamStore> store, std::unique_ptr<optim::Optimizer> optimizer,
                std::unique_ptr<precision::LossScaler> scaler, comm::ProcessGroup group,
                const ZeroOptions& options);
  ~ZeroOptimizer();
  /// Its engine is gone, or lets go of it: gradients of the model no longer come here, and step() is a
  /// UsageError. What somebody who holds it still reads stays. Talks to no rank.
  void retire() noexcept;
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  /// The groups whose hyperparameters the next step uses; may be changed between steps.
  std::vector<optim::ParamGroup>& param_groups() { return optimizer_->param_groups(); }
  optim::Optimizer& base_optimizer() { return *optimizer_; }
  const optim::Optimizer& base_optimizer() const { return *optimizer_; }
  precision::LossScaler& loss_scaler() { return *scaler_; }
  double loss_scale() const { return scaler_->scale(); }
  int stage() const { return store_->stage(); }
  const ZeroOptions& options() const { return options_; }
  const ParamStore& store() const { return *store_; }
  const comm::ProcessGroup& group() const { return group_; }
  /// Whether masters are kept beside the parameters.
  bool has_master_weights() const {
    return store_->dtype() != at::kFloat && !options_.update.sixteen_bit_masters;
  }

  /// Whether the parameters are the upper halves of the masters, so that a change of one is a change of the
  /// other.
  bool has_split_masters() const { return options_.update.split_masters; }

  /// Where this rank is. Ranks whose micro steps differ do not meet in a collective, but get an error.
  void set_micro_step(int64_t micro_step) { micro_step_->store(micro_step); }
  /// What the ranks compare from here on where they meet, beside the hyperparameters and the loss scale.
  void set_batch(const BatchSettings& batch) {
    agreement_.set_batch(batch);
    tell_ranks();
  }
  /// After what may have changed hyperparameters: ranks whose own differ do not meet in a collective, but get
  /// an error that names the hyperparameter. Costs no message, and nothing on one rank.
  void tell_ranks() {
    if (group_.size() > 1) agreement_.tell(param_groups(), loss_scale());
  }
  /// Whether the coming backward is the last of an accumulation window.
  void set_boundary(bool boundary) { reducer_->set_boundary(boundary); }
  /// After backward() returned. Nothing while paused.
  void finish_backward() {
    if (!reducer_->is_paused()) reducer_->finish_backward();
  }
  /// A backward has used the leaf module of this number for the last time (GatherPool::on_unit_done).
  void on_unit_done(size_t unit) {
    if (hooks_) hooks_->on_unit_done(unit);
  }
  bool backward_is_open() const { return reducer_->is_open(); }
  /// Reduces what backwards before the boundary left.
  void complete_window() { reducer_->complete_window(); }
  /// The largest number of elements that travel together, from here on. Throws UsageError below 1.
  void set_bucket_numel(int64_t numel) { reducer_->set_bucket_numel(numel); }
  /// Gradients stay with their parameters until resume() takes them as those of one backward.
  void pause() { reducer_->pause(); }
  bool is_paused() const { return reducer_->is_paused(); }
  void resume() { reducer_->resume(); }
  void resume_without_gradients() { reducer_->resume_without_gradients(); }
  /// Updates the owned slices and gathers the parameters; at stage 3 they are gathered when they are used.
  /// With check_overflow, a step whose gradients are not finite is skipped, and `step_number`, the parameter
  /// and the rank are named; where the loss scale cannot go lower, that is a UsageError on all ranks. Without
  /// it, such a step is applied, and not clipped. The host waits for the device where an overflow check or
  /// clipping needs the norm, else not. With super_offload it ends what backward has begun; where weights or
  /// hyperparameters were changed since, that is a UsageError, as below. Throws IoError on all ranks where
  /// the disk of one fails that holds its optimizer states: then the step is applied in part, and each
  /// further one is a UsageError until a checkpoint was loaded.
  StepResult step(int64_t step_number);
  /// Forgets the gradients of the window. Throws UsageError where a step was begun with them.
  void zero_grad();
  /// A step that was begun stays half made: until a checkpoint was loaded, each further one is a UsageError.
  void abandon_step();
  /// Whether the window is reduced: from the end of the boundary's backward to zero_grad() or step()'s end.
  bool has_gradients() const { return reducer_->has_result(); }
  /// (owned elements) of the group, reduced, loss scale included; shared with the optimizer. Throws
  /// UsageError where a step was begun with it.
  at::Tensor gradient(size_t group) const;

  MemoryBytes memory() const;

  // State, for checkpoints. With super_offload there is none from the boundary's backward to step():
  // UsageError, which check_no_step_has_begun() throws without touching any.
  void check_no_step_has_begun() const;
  /// In the group's flat space; at stage 3 in that of this rank's shards.
  Interval owned(size_t group) const { return slices_->owned(group); }
  /// The parameters that meet the owned interval, or a part of it (relative to its begin), in order.
  std::vector<ParamPiece> pieces(size_t group) const { return pieces(group, whole(group)); }
  std::vector<ParamPiece> pieces(size_t group, const Interval& part) const {
    return slices_->pieces(group, part);
  }
  /// Masters and states of the owned interval, or of a part of it. Throws IoError where they are on a disk
  /// that fails, on this rank alone; UsageError where a step was applied in part.
  GroupState state(size_t group) const { return state(group, whole(group)); }
  GroupState state(size_t group, const Interval& part) const;
  /// Names and types of the states, without elements, and the step, where a part of them is on a disk.
  std::optional<optim::SliceState> state_on_disk(size_t group, const Interval& part) const {
    return slices_->state_on_disk(group, part);
  }
  /// Calls `visit` with each slice that meets the part, which are in memory one at a time where they are on a
  /// disk; first those that are not. Throws as state().
  void read_state(size_t group, const Interval& part, const VisitSlice& visit) const;
  /// Whether fp32 masters are made where somebody asks for them, of halves or of 16-bit weights.
  bool makes_fp32_masters() const;
  /// As state(), but where masters are kept as halves without them.
  GroupState states_beside_masters(size_t group, const Interval& part) const;
  /// Weights of the owned interval that the optimizer updates: fp32 but for 16-bit masters. Throws as
  /// state().
  at::Tensor master(size_t group) const { return state(group).master; }
  /// Calls `visit` with each slice of the owned interval, which are in memory one at a time where they are on
  /// a disk: what it writes to their tensors stays. Throws IoError on this rank alone.
  void change_state(size_t group, const VisitSlice& visit) { change_state(group, whole(group), visit); }
  /// The same with the slices that meet a part of it.
  void change_state(size_t group, const Interval& part, const VisitSlice& visit);
  /// What is kept of the group's slices in memory, as it lies there: masters are fp32, or the lower halves of
  /// split ones.
  std::vector<GroupState> kept(size_t group) const;
  /// All of it was loaded: what a step that failed has left is gone.
  void state_was_loaded() { damage_.clear(); }
  /// Runs `work`, which reads or changes masters and states; where it fails on one rank, throws on all, which
  /// all call it. Without offloading to a disk no rank asks the others.
  void on_all_ranks(const char* what, const std::function<void()>& work) const;
  /// Copies the masters into the model's own dtype and gathers all parameters: after masters were loaded.
  /// Throws IoError on all ranks.
  void publish_masters();
  /// Makes the masters anew from the model's weights: after weights were loaded without masters. Throws
  /// IoError on this rank alone.
  void restore_masters_from_model();

 private:
  void check_options() const;
  void check_offload() const;
  void check_super_offload() const;
  std::unique_ptr<GradReducer> make_reducer();
  Interval whole(size_t group) const { return {0, owned(group).numel()}; }
  bool uses_disk() const;
  /// Whether backward has begun a step that step() is to complete.
  bool has_begun() const { return early_ && early_->has_begun(); }
  bool norm_is_wanted() const;
  /// Of the reduced gradients of all ranks' slices: one double on their device.
  at::Tensor sum_of_squares() const;
  /// What is known of the gradient that is not finite, the same text on all ranks, which all call it.
  std::string describe_non_finite() const;
  /// The parameter whose reduced gradient is not finite in this rank's slices, the nearest to the loss.
  std::optional<ParamPlace> non_finite_in_slices() const;
  void skip_step(int64_t step_number);
  void step_slices(int64_t step_number, double gradient_scale);
  /// Runs a part of the step; what it throws leaves the step applied in part.
  void note_damage_of(int64_t step_number, const std::function<void()>& step);
  void check_undamaged() const;
  void check_whole() const;
  void gather_parameters();

  ZeroOptions options_;
  std::shared_ptr<std::atomic<int64_t>> micro_step_ = std::make_shared<std::atomic<int64_t>>(0);
  StepAgreement agreement_;
  comm::ProcessGroup group_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<precision::LossScaler> scaler_;
  std::unique_ptr<SliceSet> slices_;
  std::unique_ptr<SliceStepper> stepper_;
  std::unique_ptr<EarlyStep> early_;  // null without super_offload
  std::string damage_;                // why a step was applied in part; empty: none was
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<GradHooks> hooks_;  // null: retired
};

}  // namespace deepspeed::zero
