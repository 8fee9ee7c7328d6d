// The engine of a pipeline. train_batch() sends a whole batch through the stages and steps once. It has the
// parts of TrainingEngine, but computes gradients differently.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/pipe/engine/data_iterator.h"
#include "deepspeed/pipe/engine/pipeline_options.h"
#include "deepspeed/pipe/module/pipeline_module.h"
#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed {

namespace pipe {
struct BatchPlan;
class BatchPlanner;
class PipeSchedule;
class StageLinks;
class TiedGradients;
}  // namespace pipe

class DEEPSPEED_API PipelineEngine : public TrainingEngine {
 public:
  /// Makes the engine of this rank's stage of `module`. The parameters stay the same tensors. Collective.
  /// Throws ConfigError for ZeRO stage 3, and what initialize() throws.
  PipelineEngine(std::shared_ptr<pipe::PipelineModule> module, const InitializeOptions& options);
  ~PipelineEngine() override;

  /// Trains on gradient_accumulation_steps micro batches and steps once. Returns the mean loss over micro
  /// batches and data-parallel ranks, on all ranks. It is fp64 if the model has fp64 parameters, otherwise
  /// fp32. `data`: for the first and the last stage; default: the data of set_dataloader() or
  /// set_dataiterator(). Collective. Throws UsageError under a NoGradGuard. Throws pipe::EndOfData on all
  /// ranks if the data ends within the batch. After an error on one rank the others throw a CommError that
  /// names this rank.
  at::Tensor train_batch(const pipe::DataIterator& data = {});
  /// Sends micro batches forward, without gradients. Collective. Throws EndOfData as train_batch() does.
  EvalBatchResult eval_batch(const pipe::DataIterator& data, const EvalBatchOptions& options = {});

  /// Sets the source of train_batch(): an iterator, or a loader that is read repeatedly.
  void set_dataiterator(pipe::DataIterator data) { data_ = std::move(data); }
  template <class Loader>
  void set_dataloader(std::shared_ptr<Loader> loader) {
    data_ = pipe::DataIterator::repeating(std::move(loader));
  }
  /// Sets a function that changes each micro batch of train_batch() and eval_batch() before use.
  void set_batch_fn(std::function<pipe::MicroBatch(pipe::MicroBatch)> batch_fn) {
    batch_fn_ = std::move(batch_fn);
  }
  /// Stores a flag that DeepSpeed's programs set. It has no effect: masks are tensors like others.
  void set_has_attention_mask(bool value) { has_attention_mask_ = value; }
  bool has_attention_mask() const { return has_attention_mask_; }
  /// Makes the next batch send the shapes of activations again. Collective. Call it if these shapes change
  /// while the shapes of inputs do not.
  void reset_activation_shape();
  /// Returns the means of the module's additional_losses in the last train_batch(), on all ranks. The result
  /// is empty if the module has no additional_losses.
  const std::optional<std::map<std::string, at::Tensor>>& get_additional_losses() const {
    return additional_losses_;
  }

  bool is_pipe_parallel() const { return module_->num_stages() > 1; }
  bool is_first_stage() const { return module_->grid().is_first_stage(); }
  bool is_last_stage() const { return module_->grid().is_last_stage(); }
  int num_stages() const { return module_->num_stages(); }
  int stage_id() const { return module_->stage_id(); }
  int get_pipeline_parallel_rank() const { return stage_id(); }
  const ParallelRanks& grid() const { return module_->grid(); }
  /// Returns whether gradients are being reduced or the optimizer steps: never between batches.
  bool is_gradient_accumulation_boundary() const { return is_in_step_; }
  pipe::PipelineModule& module() { return *module_; }
  const std::shared_ptr<pipe::PipelineModule>& module_ptr() const { return module_; }

  // These are not available in pipeline mode: each throws PipelineError.
  template <class... Args>
  at::Tensor forward(const Args&...) {
    refuse("forward");
  }
  template <class... Args>
  at::Tensor backward(const Args&...) {
    refuse("backward");
  }
  template <class... Args>
  void step(const Args&...) {
    refuse("step");
  }

 private:
  PipelineEngine(std::shared_ptr<pipe::PipelineModule> module, const InitializeOptions& options,
                 std::unique_ptr<pipe::TiedGradients> tied);
  [[noreturn]] static void refuse(const char* call);
  void check_config() const;
  /// Checks that the config's keys about building the module match how it was built.
  void check_building() const;
  void log_schedule() const;
  /// Runs `work`. If it throws on this rank, the engine's groups end, so that the other ranks fail too.
  void run_together(const char* call, const std::function<void()>& work);
  /// Returns the groups for messages between stages and for sums of tied gradients.
  std::vector<comm::ProcessGroup> own_groups() const;
  void give_up(const std::string& reason) const;
  pipe::DataIterator with_batch_fn(const pipe::DataIterator& data) const;
  /// Reads the data of a batch (BatchPlanner::plan()). An error leaves the engine unchanged.
  pipe::BatchPlan plan_batch(const pipe::DataIterator& data, int num_micro_batches);
  /// Returns the error's text, with this pipeline's stages by rank.
  std::string with_legend(const CommError& error) const;
  /// Returns, on all ranks, the means over micro batches and data-parallel ranks of `count` scalars. `sums`:
  /// over micro batches, on the last stage; elsewhere undefined.
  at::Tensor shared_means(const at::Tensor& sums, int64_t count, int num_micro_batches) const;
  /// Returns this stage's schedule for a batch. It is made again when the number of micro batches changes.
  const pipe::Steps& train_steps(int num_micro_batches);
  /// Drops the gradients of a batch that failed midway.
  void forget_failed_batch();
  void update(const at::Tensor& loss);
  at::Tensor shared_loss(const std::vector<at::Tensor>& losses, int num_micro_batches) const;
  void take_additional_losses(int num_micro_batches);

  std::shared_ptr<pipe::PipelineModule> module_;
  std::unique_ptr<pipe::StageLinks> links_;
  std::unique_ptr<pipe::TiedGradients> tied_;
  std::unique_ptr<pipe::BatchPlanner> planner_;
  pipe::DataIterator data_;
  std::function<pipe::MicroBatch(pipe::MicroBatch)> batch_fn_;
  std::optional<std::map<std::string, at::Tensor>> additional_losses_;
  bool has_attention_mask_ = false;
  bool is_in_step_ = false;
  at::ScalarType loss_dtype_ = at::kFloat;  // dtype of the shared means
  int steps_of_ = 0;                        // number of micro batches in steps_; 0: none yet
  pipe::Steps steps_;
};

}  // namespace deepspeed
