// What `initialize` returns as the optimizer: an optimizer over the part of the flat space that this rank
// owns (all of it at stage 0, one partition at stages 1 and 2), with fp32 master weights, loss scaling and
// clipping around it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/process_group.h"
#include "deepspeed/optim/optimizer.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/grad_hooks.h"
#include "deepspeed/zero/grad_reducer.h"
#include "deepspeed/zero/param_store.h"
#include "deepspeed/zero/partition_gather.h"

namespace deepspeed::zero {

struct ZeroOptions {
  int stage = 0;                     // 0, 1 or 2
  double gradient_clipping = 1.0;    // largest L2 norm of all gradients; 0: none
  bool sixteen_bit_masters = false;  // no fp32 masters: the model's own 16-bit weights are updated
  bool check_overflow = false;  // fp16 always, bf16 by config: skip a step whose gradients are not finite
  int64_t reduce_bucket_numel = 500'000'000;
  bool overlap_comm = false;
  bool contiguous_gradients = true;      // false: each parameter's gradient travels alone
  bool reduce_scatter = true;            // stages 1 and 2: false sums all elements on every rank
  bool multi_rank_buckets = true;        // false: one reduction for every rank that owns a part of a bucket
  bool ignore_unused_parameters = true;  // false: a parameter without a gradient is an error
  GatherOptions gather;                  // of the updated parameters, stages 1 and 2
  at::ScalarType communication_dtype = at::kFloat;
  std::optional<at::ScalarType> accumulation_dtype;  // of gradients; absent: the parameters' own
  Averaging averaging;
};

/// Outcome of one step.
struct StepResult {
  bool applied = false;  // false: gradients were not finite, nothing changed
  std::optional<double>
      grad_norm;  // L2 norm over all parameters, unscaled, before clipping; none where not computed
};

/// Bytes that this rank holds between steps.
struct MemoryBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t master_weights = 0;  // 0 in fp32, and with 16-bit masters: the parameters are the masters
  int64_t optimizer_states = 0;
  int64_t total() const { return parameters + gradients + master_weights + optimizer_states; }
};

class ZeroOptimizer {
 public:
  ZeroOptimizer(std::unique_ptr<ParamStore> store, std::unique_ptr<optim::Optimizer> optimizer,
                std::unique_ptr<precision::LossScaler> scaler, comm::ProcessGroup group,
                const ZeroOptions& options);
  ~ZeroOptimizer();
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  /// The groups whose hyperparameters the next step uses; may be changed between steps.
  std::vector<optim::ParamGroup>& param_groups() { return optimizer_->param_groups(); }
  optim::Optimizer& base_optimizer() { return *optimizer_; }
  const optim::Optimizer& base_optimizer() const { return *optimizer_; }
  precision::LossScaler& loss_scaler() { return *scaler_; }
  double loss_scale() const { return scaler_->scale(); }
  int stage() const { return options_.stage; }
  const ZeroOptions& options() const { return options_; }
  const ParamStore& store() const { return *store_; }
  const comm::ProcessGroup& group() const { return group_; }
  /// Whether masters are kept beside the parameters.
  bool has_master_weights() const { return store_->dtype() != at::kFloat && !options_.sixteen_bit_masters; }

  /// Where this rank is. Ranks whose micro steps differ do not meet in a collective, but get an error.
  void set_micro_step(int64_t micro_step) { micro_step_->store(micro_step); }
  /// Whether the coming backward is the last of an accumulation window.
  void set_boundary(bool boundary) { reducer_->set_boundary(boundary); }
  /// After backward() returned. Nothing while paused.
  void finish_backward() {
    if (!reducer_->is_paused()) reducer_->finish_backward();
  }
  bool backward_is_open() const { return reducer_->is_open(); }
  /// Reduces what backwards before the boundary left.
  void complete_window() { reducer_->complete_window(); }
  /// Gradients stay with their parameters until resume() takes them as those of one backward.
  void pause() { reducer_->pause(); }
  bool is_paused() const { return reducer_->is_paused(); }
  void resume() { reducer_->resume(); }
  void resume_without_gradients() { reducer_->resume_without_gradients(); }
  /// Updates the owned slices and gathers the parameters. `step_number` is named in messages. Where the loss
  /// scale cannot go lower, gradients that are not finite are a UsageError on all ranks. Their parameter is
  /// named, and its rank from the second skipped step on: gradients are looked at before their sum over the
  /// ranks only after a step was skipped.
  StepResult step(int64_t step_number);
  /// Forgets the gradients of the window.
  void zero_grad();

  MemoryBytes memory() const;

  // State, for checkpoints.
  Interval owned(size_t group) const { return slices_[group].interval; }
  /// Weights of the owned interval that the optimizer updates, shared with it: fp32 but for 16-bit masters.
  at::Tensor master(size_t group) const {
    const optim::FlatSlice& slice = slices_[group].slice;
    return options_.sixteen_bit_masters ? slice.low_precision : slice.master;
  }
  /// Copies the masters into the model's own dtype and gathers all parameters: after masters were loaded.
  void publish_masters();
  /// Makes the masters anew from the model's weights: after weights were loaded without masters.
  void restore_masters_from_model();

 private:
  struct OwnedSlice {
    Interval interval;
    std::vector<optim::Segment> segments;
    std::unique_ptr<optim::CutParameters> cut;  // null where nothing can be cut
    optim::FlatSlice slice;                     // with 16-bit masters, slice.master lives for a step alone
  };

  struct NormAndFlag {
    double norm_of_scaled = 0.0;  // L2 over all ranks' slices, still multiplied by the loss scale
    bool finite = true;
  };

  OwnedSlice make_slice(size_t group) const;
  bool norm_is_wanted() const;
  NormAndFlag measure_gradients() const;
  /// What is known of the gradient that is not finite, the same text on all ranks, which all call it.
  std::string describe_non_finite() const;
  void skip_step(int64_t step_number);
  void step_slice(OwnedSlice& owned, double gradient_scale);
  void gather_parameters();

  ZeroOptions options_;
  std::shared_ptr<std::atomic<int64_t>> micro_step_ = std::make_shared<std::atomic<int64_t>>(0);
  comm::ProcessGroup group_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<precision::LossScaler> scaler_;
  std::vector<OwnedSlice> slices_;  // one a group
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<GradHooks> hooks_;
};

}  // namespace deepspeed::zero
