// The engine of a model that stages share out: train_batch() sends a whole batch through the pipeline and
// steps once. It is made of the parts of the first engine (TrainingEngine); what is its own is how gradients
// come about.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
  /// Takes the stage of `module`, whose parameters keep their identity. Collective. Throws ConfigError for
  /// ZeRO stage 3, and what initialize() throws.
  PipelineEngine(std::shared_ptr<pipe::PipelineModule> module, const InitializeOptions& options);
  ~PipelineEngine() override;

  /// Trains on gradient_accumulation_steps micro batches and steps once. Returns the mean of their losses,
  /// over the data-parallel ranks too, on all ranks: in fp64 where the model has parameters in fp64, else in
  /// fp32. `data`: of the first and the last stage; default: that
  /// of set_dataloader() or set_dataiterator(). All ranks call it. Throws UsageError under a NoGradGuard,
  /// pipe::EndOfData on all ranks where the data ends within the batch, and after an error on one rank
  /// CommError on the others, which names it.
  at::Tensor train_batch(const pipe::DataIterator& data = {});
  /// Sends micro batches forward, without gradients. All ranks call it.
  EvalBatchResult eval_batch(const pipe::DataIterator& data, const EvalBatchOptions& options = {});

  /// Sets what train_batch() reads: an iterator, or a loader whose batches come again and again.
  void set_dataiterator(pipe::DataIterator data) { data_ = std::move(data); }
  template <class Loader>
  void set_dataloader(std::shared_ptr<Loader> loader) {
    data_ = pipe::DataIterator::repeating(std::move(loader));
  }
  /// Has each micro batch changed by `batch_fn` before it is used.
  void set_batch_fn(std::function<pipe::MicroBatch(pipe::MicroBatch)> batch_fn) {
    batch_fn_ = std::move(batch_fn);
  }
  /// As DeepSpeed's, for programs that call it: masks are tensors as any, of any dtype, and need no word.
  void set_has_attention_mask(bool value) { has_attention_mask_ = value; }
  bool has_attention_mask() const { return has_attention_mask_; }
  /// Has the shapes of activations told anew with the next batch. All ranks call it. Needed where they change
  /// although those of the inputs do not.
  void reset_activation_shape();
  /// The means of what the module's additional_losses gave in the last train_batch(), on all ranks; nothing
  /// where there is none.
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
  /// Whether gradients are reduced or the optimizer steps just now: never between two batches.
  bool is_gradient_accumulation_boundary() const { return is_in_step_; }
  pipe::PipelineModule& module() { return *module_; }
  const std::shared_ptr<pipe::PipelineModule>& module_ptr() const { return module_; }

  // These are not accessible in pipeline mode: each throws PipelineError.
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
  /// Compares the keys of the config that say how the module is built with how it was built.
  void check_building() const;
  void log_schedule() const;
  /// Runs `work`; where it throws on this rank, the other ranks are told.
  void run_together(const char* call, const std::function<void()>& work);
  void give_up(const std::string& reason) const;
  pipe::DataIterator with_batch_fn(const pipe::DataIterator& data) const;
  /// Reads what a batch needs. An error here leaves the engine as it was.
  pipe::BatchPlan plan_batch(const pipe::DataIterator& data, int num_micro_batches);
  /// The error's text, with the stages of this pipeline by rank.
  std::string with_legend(const CommError& error) const;
  /// Returns on all ranks the means of the last stage's scalars, over micro batches and data-parallel ranks.
  at::Tensor shared_means(const at::Tensor& sums, int64_t count, int num_micro_batches) const;
  /// Returns what this stage executes for a batch; made anew where the number of micro batches changes.
  const pipe::Steps& train_steps(int num_micro_batches);
  /// Drops the gradients of a batch that failed in its middle.
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
  at::ScalarType loss_dtype_ = at::kFloat;  // of the means that all stages get
  int steps_of_ = 0;                        // the number of micro batches that steps_ is for; 0: none yet
  pipe::Steps steps_;
};

}  // namespace deepspeed
