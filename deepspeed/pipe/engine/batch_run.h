// Executes a stage's schedule for one batch.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/pipe/engine/batch_plan.h"
#include "deepspeed/pipe/exchange/stage_links.h"
#include "deepspeed/pipe/module/pipeline_module.h"
#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed::pipe {

struct BatchRunOptions {
  bool is_training = true;
  bool computes_loss = true;
  bool keeps_outputs = false;  // keeps what the model's last part returns
};

/// Runs one batch: instructions in order, with receives started ahead of them.
class BatchRun {
 public:
  /// All arguments must outlive the run.
  BatchRun(PipelineModule& module, StageLinks& links, StepDriver& driver, BatchPlan& plan,
           const BatchRunOptions& options);

  /// Executes the steps, except reductions and the optimizer's step, which the engine does.
  void run(const Steps& steps);

  /// Returns a detached scalar loss per micro batch on the last stage; empty elsewhere.
  const std::vector<at::Tensor>& losses() const { return losses_; }
  /// Returns each micro batch's outputs on the last stage if keeps_outputs is set; otherwise empty.
  const std::vector<Tensors>& outputs() const { return kept_outputs_; }

 private:
  /// Holds a micro batch's tensors in a chunk, from forward to the end of backward.
  struct Passage {
    Tensors inputs;
    Tensors outputs;
    at::Tensor loss;
    Tensors output_grads;
    Tensors input_grads;
    autograd::WeightBackward later;
  };

  void execute(const Instruction& instruction);
  void load(const Instruction& instruction);
  Tensors inputs_of(const Passage& micro) const;
  void forward(const Instruction& instruction);
  void backward(const Instruction& instruction);
  void backward_inputs(const Instruction& instruction);
  void backward_weights(const Instruction& instruction);
  void forget_graph(const Instruction& instruction);
  void expect_ahead();
  Passage& passage(const Instruction& instruction);
  int part_of(const Instruction& instruction) const;
  bool is_last_part(const Instruction& instruction) const;
  ListKind kind_of(const Instruction& instruction, int part) const;
  /// Counts one backward over parameters, just before it runs. Tells the driver if this is the batch's last
  /// one, unless there are several chunks, whose gradients are reduced at the end.
  void note_weight_backward();

  PipelineModule& module_;
  StageLinks& links_;
  StepDriver& driver_;
  BatchPlan& plan_;
  const BatchRunOptions options_;
  std::map<std::pair<int, int>, Passage> passages_;           // by chunk and micro batch
  std::deque<Instruction> coming_inputs_, coming_gradients_;  // receives not started yet
  int weight_backwards_left_ = 0;
  std::vector<at::Tensor> losses_;
  std::vector<Tensors> kept_outputs_;
};

}  // namespace deepspeed::pipe
