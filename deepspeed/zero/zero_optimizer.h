// What `initialize` returns as the optimizer. It steps this rank's part of the flat space: all of it at stage
// 0, one partition at stages 1 and 2, its shards at stage 3. It adds fp32 master weights, loss scaling and
// clipping.
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

namespace deepspeed::comm {
class ProcessGroup;
}
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
  /// Detaches the optimizer from the model, when its engine ends or is destroyed. It gets no more gradients,
  /// and step() throws UsageError. Its state can still be read. Does not communicate.
  void retire() noexcept;
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  /// Returns the parameter groups, with the next step's hyperparameters, which may be changed between steps.
  std::vector<optim::ParamGroup>& param_groups();
  optim::Optimizer& base_optimizer() { return *optimizer_; }
  const optim::Optimizer& base_optimizer() const { return *optimizer_; }
  precision::LossScaler& loss_scaler() { return *scaler_; }
  double loss_scale() const;
  int stage() const;

  /// Drops the gradients accumulated since the last step. Throws UsageError if backward has begun a step with
  /// them (super_offload).
  void zero_grad();
  /// Returns a group's reduced gradient, 1-D, for the elements that this rank owns. It is shared with the
  /// optimizer and includes the loss scale. Throws UsageError if backward has begun a step with it.
  at::Tensor gradient(size_t group) const;

  MemoryBytes memory() const;

  // --- for the library itself; the headers of these types are not installed ---

  const ParamStore& store() const { return *store_; }
  const ZeroGroups& ranks() const { return *ranks_; }
  /// Returns the reducer, which sums gradients in buckets and holds the sums.
  GradReducer& gradients() { return *reducer_; }
  const GradReducer& gradients() const { return *reducer_; }
  /// Returns the master weights and optimizer states that this rank owns.
  ZeroState& state() { return *state_; }
  const ZeroState& state() const { return *state_; }
  /// Returns the exchange of compressed values that replaces the exchange of gradients. Null if the
  /// optimizer only takes gradients.
  CompressedExchange* exchange() { return exchange_.get(); }
  /// Sets this rank's micro step. Ranks at different micro steps get an error from their next collective.
  void set_micro_step(int64_t micro_step) { micro_step_->store(micro_step); }
  /// Sets the batch settings that ranks compare, in addition to hyperparameters and loss scale.
  void set_batch(const BatchSettings& batch);
  /// Updates the hyperparameters and loss scale that collectives compare. If ranks differ, the next
  /// collective throws an error that names the hyperparameter. Sends no message, and costs nothing on one
  /// rank.
  void tell_ranks();
  /// Makes step() also throw CommError if one of `groups` has failed. A pipeline names the groups that send
  /// the values on which its gradients depend.
  void rely_on(std::vector<comm::ProcessGroup> groups);
  /// Notes that backward is done with the leaf module of this number (GatherPool::on_unit_done).
  void on_unit_done(size_t unit);
  /// Updates the weights that this rank owns. At stages 1 and 2 it then gathers the parameters; stage 3
  /// gathers them when they are used.
  /// With check_overflow, a step with non-finite gradients is skipped. A warning names `step_number`, the
  /// parameter and the rank. If the loss scale cannot be lowered, all ranks throw UsageError. Without
  /// check_overflow the step is applied without clipping.
  /// The host waits for the norm if an overflow check needs it, or if clipping does and the factor does not
  /// stay on the device. On a GPU without offload, and with an optimizer that skips_on_device(), the host
  /// waits only after it has queued the whole step.
  /// With super_offload this ends the step that backward has begun. Throws UsageError if weights or
  /// hyperparameters were changed since then.
  /// Throws IoError on all ranks if a disk with one rank's optimizer states fails. The step is then applied
  /// in part, as after the UsageError above. Every further step throws UsageError until a checkpoint is
  /// loaded.
  StepResult step(int64_t step_number);

  /// Returns the state that only this rank has: errors of earlier compression or quantization, and 0/1 Adam's
  /// local steps. Masters and the states that ranks share are left out. Tensors are shared with the
  /// optimizer.
  RankState rank_state() const;
  /// Returns whether this rank keeps errors of compression or quantization.
  bool keeps_errors() const;
  /// Loads what rank_state() returned, after masters, states and the loss scale were loaded. Returns false if
  /// `own` comes from another number of ranks or has other sizes. Errors then start at zero, and the weights
  /// that were loaded for all ranks stay. Does not communicate.
  bool load_rank_state(const RankState& own);

 private:
  std::unique_ptr<GradReducer> make_reducer();
  bool norm_is_wanted() const;
  /// Returns whether gradients stay local until the next step, which exchanges other values.
  bool keeps_gradients() const;
  /// Returns the sum of squares of all ranks' gradients: one double on the model's device. If gradients stay
  /// local, it is the ranks' average.
  at::Tensor sum_of_squares() const;
  /// Adds to `sum` the squares of a group's gradient elements that no other rank counts.
  void add_squares(size_t group, const at::Tensor& sum) const;
  /// Throws CommError if a group that gradients depend on has failed.
  void check_groups() const;
  void skip_step(int64_t step_number);
  void step_slices(int64_t step_number, const GradientScale& gradient_scale);
  /// Returns whether the factor for gradients is made and used on the device.
  bool scales_on_device() const;
  /// Returns whether the device itself skips a step with non-finite gradients. The host then queues the whole
  /// step without waiting.
  bool skips_on_device() const;
  GradientScale scale_by(const GradNorm& norm, double loss_scale) const;

  const std::unique_ptr<const ZeroOptions> options_;
  const std::shared_ptr<std::atomic<int64_t>> micro_step_;
  const std::unique_ptr<StepAgreement> agreement_;
  const std::unique_ptr<const ZeroGroups> ranks_;
  std::vector<comm::ProcessGroup> relied_on_;
  const std::unique_ptr<ParamStore> store_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::unique_ptr<precision::LossScaler> scaler_;
  std::unique_ptr<ZeroState> state_;
  EarlyStep* early_ = nullptr;  // owned by state_; null without super_offload
  std::unique_ptr<SliceStepper> stepper_;
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<CompressedExchange> exchange_;  // null if the optimizer only takes gradients
  std::unique_ptr<GradHooks> hooks_;              // null after retire()
};

}  // namespace deepspeed::zero
