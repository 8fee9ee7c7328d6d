// What `initialize` returns as the optimizer: an optimizer over the part of the flat space that this rank
// owns (all of it at stage 0, one partition at stages 1 and 2, its shards at stage 3), with fp32 master
// weights, loss scaling and clipping around it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/zero/memory_bytes.h"

namespace deepspeed::optim {
class Optimizer;
}
namespace deepspeed::precision {
class LossScaler;
}

namespace deepspeed::zero {

class CompressedExchange;
class EarlyStep;
class GradHooks;
class GradNorm;
class GradReducer;
class ParamStore;
class SliceStepper;
class StepAgreement;
class ZeroState;
struct BatchSettings;
struct GradientScale;
struct RankState;
struct StepResult;
struct ZeroGroups;
struct ZeroOptions;

class DEEPSPEED_API ZeroOptimizer {
 public:
  ZeroOptimizer(std::unique_ptr<ParamStore> store, std::unique_ptr<optim::Optimizer> optimizer,
                std::unique_ptr<precision::LossScaler> scaler, const ZeroGroups& ranks,
                const ZeroOptions& options);
  ~ZeroOptimizer();
  /// Its engine is gone, or lets go of it: gradients of the model no longer come here, and step() is a
  /// UsageError. What somebody who holds it still reads stays. Talks to no rank.
  void retire() noexcept;
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  /// The groups whose hyperparameters the next step uses; may be changed between steps.
  std::vector<optim::ParamGroup>& param_groups();
  optim::Optimizer& base_optimizer() { return *optimizer_; }
  const optim::Optimizer& base_optimizer() const { return *optimizer_; }
  precision::LossScaler& loss_scaler() { return *scaler_; }
  double loss_scale() const;
  int stage() const;

  /// Forgets the gradients of the window. Throws UsageError where a step was begun with them.
  void zero_grad();
  /// (owned elements) of the group, reduced, loss scale included; shared with the optimizer. Throws
  /// UsageError where a step was begun with it.
  at::Tensor gradient(size_t group) const;

  MemoryBytes memory() const;

  // --- for the library itself, whose headers of these types are not installed ---

  const ParamStore& store() const { return *store_; }
  const ZeroGroups& ranks() const { return *ranks_; }
  /// Where gradients are summed: when, in which buckets, and what is there of them.
  GradReducer& gradients() { return *reducer_; }
  const GradReducer& gradients() const { return *reducer_; }
  /// Masters and states of what this rank owns.
  ZeroState& state() { return *state_; }
  const ZeroState& state() const { return *state_; }
  /// Is null unless the optimizer exchanges compressed values in place of gradients.
  CompressedExchange* exchange() { return exchange_.get(); }
  /// Where this rank is. Ranks whose micro steps differ do not meet in a collective, but get an error.
  void set_micro_step(int64_t micro_step) { micro_step_->store(micro_step); }
  /// What the ranks compare from here on where they meet, beside the hyperparameters and the loss scale.
  void set_batch(const BatchSettings& batch);
  /// After what may have changed hyperparameters: ranks whose own differ do not meet in a collective, but get
  /// an error that names the hyperparameter. Costs no message, and nothing on one rank.
  void tell_ranks();
  /// A backward has used the leaf module of this number for the last time (GatherPool::on_unit_done).
  void on_unit_done(size_t unit);
  /// Updates the owned slices and gathers the parameters; at stage 3 they are gathered when they are used.
  /// With check_overflow, a step whose gradients are not finite is skipped, and `step_number`, the parameter
  /// and the rank are named; where the loss scale cannot go lower, that is a UsageError on all ranks. Without
  /// it, such a step is applied, and not clipped. The host waits for the norm where an overflow check needs
  /// it, or clipping where the factor does not stay on the device; on a GPU without offload once the whole
  /// step was given to the device, where the optimizer skips_on_device(). With super_offload it ends what
  /// backward has begun; where weights or hyperparameters were changed since, that is a UsageError, as below.
  /// Throws IoError on all ranks where the disk of one fails that holds its optimizer states: then the step
  /// is applied in part, and each further one is a UsageError until a checkpoint was loaded.
  StepResult step(int64_t step_number);

  /// Returns what this rank alone has of the run, beside masters and states: what compression or quantization
  /// took from earlier exchanges. Tensors are shared with the optimizer.
  RankState rank_state() const;
  /// Whether there is such a thing.
  bool keeps_errors() const;
  /// Takes over a rank's own state, after masters, states and the loss scale were loaded. Returns whether it
  /// fits; where not, errors begin at zero, and ranks with the weights that were loaded. Talks to no rank.
  bool load_rank_state(const RankState& own);

 private:
  std::unique_ptr<GradReducer> make_reducer();
  bool norm_is_wanted() const;
  /// Whether gradients are each rank's own in the next step, which exchanges something else.
  bool keeps_gradients() const;
  /// Of the reduced gradients of all ranks' slices: one double on their device.
  at::Tensor sum_of_squares() const;
  /// Adds those of a group's gradient that no other rank counts.
  void add_squares(size_t group, const at::Tensor& sum) const;
  void skip_step(int64_t step_number);
  void step_slices(int64_t step_number, const GradientScale& gradient_scale);
  /// Whether the device keeps to itself what a step multiplies gradients by.
  bool scales_on_device() const;
  /// Whether the device leaves a step out by itself where gradients are not finite, so that the whole step is
  /// given to it before the host knows.
  bool skips_on_device() const;
  GradientScale scale_by(const GradNorm& norm, double loss_scale) const;

  const std::unique_ptr<const ZeroOptions> options_;
  const std::shared_ptr<std::atomic<int64_t>> micro_step_;
  const std::unique_ptr<StepAgreement> agreement_;
  const std::unique_ptr<const ZeroGroups> ranks_;
  const std::unique_ptr<ParamStore> store_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::unique_ptr<precision::LossScaler> scaler_;
  std::unique_ptr<ZeroState> state_;
  EarlyStep* early_ = nullptr;  // of state_; null without super_offload
  std::unique_ptr<SliceStepper> stepper_;
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<CompressedExchange> exchange_;  // null: of an optimizer that takes gradients alone
  std::unique_ptr<GradHooks> hooks_;              // null: retired
};

}  // namespace deepspeed::zero
