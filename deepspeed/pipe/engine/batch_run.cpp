// Instructions run one after the other. load() takes inputs. forward() and backward() compute, and keep what
// later instructions need. Sends and receives exchange tensors with neighbours. A Passage holds a micro
// batch's tensors until its backward has used them.
#include "deepspeed/pipe/engine/batch_run.h"

#include <utility>

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

namespace deepspeed::pipe {
namespace {

constexpr size_t kReceivesAhead = 2;  // lists that each link receives ahead of their use

struct RootsAndGrads {
  torch::autograd::variable_list roots, grads;
};

// Returns the outputs with defined gradients, and these gradients.
RootsAndGrads with_gradients(const Tensors& outputs, const Tensors& gradients) {
  RootsAndGrads result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    result.roots.push_back(outputs[i]);
    result.grads.push_back(gradients[i]);
  }
  return result;
}

Tensors take_gradients(const Tensors& inputs) {
  Tensors gradients;
  for (const at::Tensor& input : inputs) {
    gradients.push_back(input.defined() ? input.grad() : input);
    if (input.defined()) input.mutable_grad().reset();
  }
  return gradients;
}

Tensors on_device(const Tensors& values, at::Device device) {
  Tensors moved;
  for (const at::Tensor& value : values)
    moved.push_back(value.defined() ? value.detach().to(device, /*non_blocking=*/true) : value);
  return moved;
}

}  // namespace

BatchRun::BatchRun(PipelineModule& module, StageLinks& links, StepDriver& driver, BatchPlan& plan,
                   const BatchRunOptions& options)
    : module_(module), links_(links), driver_(driver), plan_(plan), options_(options) {}

void BatchRun::run(const Steps& steps) {
  for (const auto& step : steps) {
    for (const Instruction& instruction : step) {
      using enum InstructionKind;
      const InstructionKind kind = instruction.kind;
      if (kind == kRecvActivation) coming_inputs_.push_back(instruction);
      if (kind == kRecvGrad) coming_gradients_.push_back(instruction);
      weight_backwards_left_ += kind == kBackwardPass || kind == kBackwardWeight;
    }
  }
  for (const auto& step : steps) {
    for (const Instruction& instruction : step) execute(instruction);
  }
  links_.finish_sends();
}

void BatchRun::execute(const Instruction& instruction) {
  expect_ahead();
  Passage& micro = passage(instruction);
  switch (instruction.kind) {
    case InstructionKind::kLoadMicroBatch:
      return load(instruction);
    case InstructionKind::kRecvActivation:
      if (links_.num_expected_inputs() == 0) coming_inputs_.pop_front();
      micro.inputs = links_.receive_inputs(kind_of(instruction, part_of(instruction) - 1));
      return;
    case InstructionKind::kForwardPass:
      return forward(instruction);
    case InstructionKind::kSendActivation:
      links_.send_outputs(kind_of(instruction, part_of(instruction)), micro.outputs);
      if (!options_.is_training) passages_.erase({instruction.model_chunk, instruction.micro_batch});
      return;
    case InstructionKind::kRecvGrad:
      if (links_.num_expected_gradients() == 0) {
        coming_gradients_.pop_front();
        links_.expect_gradients(form_of(micro.outputs));
      }
      micro.output_grads = links_.receive_gradients();
      return;
    case InstructionKind::kBackwardPass:
      return backward(instruction);
    case InstructionKind::kBackwardInput:
      return backward_inputs(instruction);
    case InstructionKind::kBackwardWeight:
      return backward_weights(instruction);
    case InstructionKind::kSendGrad:
      links_.send_gradients(micro.inputs, micro.input_grads);
      micro.inputs.clear();
      micro.input_grads.clear();
      return;
    case InstructionKind::kReduceTiedGrads:
    case InstructionKind::kReduceGrads:
    case InstructionKind::kOptimizerStep:
      return;
  }
}

/// Starts a few receives ahead of their instructions, so that they run while this stage computes.
void BatchRun::expect_ahead() {
  while (!coming_inputs_.empty() && links_.num_expected_inputs() < kReceivesAhead) {
    const Instruction& next = coming_inputs_.front();
    if (!links_.expect_inputs(kind_of(next, part_of(next) - 1))) break;
    coming_inputs_.pop_front();
  }
  while (!coming_gradients_.empty() && links_.num_expected_gradients() < kReceivesAhead) {
    const Tensors& outputs = passage(coming_gradients_.front()).outputs;
    if (outputs.empty()) break;  // its forward is still to come
    links_.expect_gradients(form_of(outputs));
    coming_gradients_.pop_front();
  }
}

BatchRun::Passage& BatchRun::passage(const Instruction& instruction) {
  return passages_[{instruction.model_chunk, instruction.micro_batch}];
}

int BatchRun::part_of(const Instruction& instruction) const {
  return instruction.model_chunk * module_.num_stages() + module_.stage_id();
}

bool BatchRun::is_last_part(const Instruction& instruction) const {
  return part_of(instruction) == module_.num_stages() * module_.model_chunks() - 1;
}

ListKind BatchRun::kind_of(const Instruction& instruction, int part) const {
  return {plan_.input_forms[size_t(instruction.micro_batch)], part, options_.is_training};
}

void BatchRun::load(const Instruction& instruction) {
  if (part_of(instruction) != 0) return;  // labels are read later
  const MicroBatch& batch = plan_.micro_batches[size_t(instruction.micro_batch)];
  passage(instruction).inputs = on_device(batch.inputs, driver_.state().parts.model.device());
}

/// Returns a micro batch's inputs, with floating-point ones cast to fp16 if fp16.auto_cast is set. The Python
/// package casts its inputs itself.
Tensors BatchRun::inputs_of(const Passage& micro) const {
  Tensors inputs = micro.inputs;
  const auto& fp16 = driver_.state().parts.config.fp16;
  if (!fp16.enabled || !fp16.auto_cast || module_.options().front_end) return inputs;
  for (at::Tensor& input : inputs)
    if (input.defined() && input.is_floating_point()) input = input.to(at::kHalf);
  return inputs;
}

void BatchRun::forward(const Instruction& instruction) {
  Passage& micro = passage(instruction);
  const ForwardScope scope(driver_);
  micro.outputs = module_.forward(inputs_of(micro), instruction.model_chunk);
  const at::Device device = driver_.state().parts.model.device();
  if (!is_last_part(instruction)) {
    // The next stage expects all outputs on its device, also for example a mask made on the host.
    for (at::Tensor& output : micro.outputs)
      if (output.defined()) output = output.to(device);
    return;
  }
  if (options_.keeps_outputs) {
    Tensors& kept = kept_outputs_.emplace_back();
    for (const at::Tensor& output : micro.outputs)
      kept.push_back(output.defined() ? output.detach() : output);
  }
  if (options_.computes_loss) {
    const MicroBatch& batch = plan_.micro_batches[size_t(instruction.micro_batch)];
    micro.loss = module_.loss(micro.outputs, on_device(batch.labels, device));
    losses_.push_back(micro.loss.detach().to(device));  // ranks average it on this device
  }
  if (options_.is_training) {
    micro.outputs.clear();
  } else {
    passages_.erase({instruction.model_chunk, instruction.micro_batch});
  }
}

void BatchRun::note_weight_backward() {
  --weight_backwards_left_;
  // With several chunks the gradients complete at different times, so they are reduced at the end.
  if (weight_backwards_left_ == 0 && module_.model_chunks() == 1) driver_.set_boundary(true);
}

void BatchRun::backward(const Instruction& instruction) {
  Passage& micro = passage(instruction);
  note_weight_backward();
  driver_.run_backward(
      [&] {
        if (is_last_part(instruction)) return driver_.scaled_root(micro.loss).backward();
        const RootsAndGrads of = with_gradients(micro.outputs, micro.output_grads);
        if (!of.roots.empty()) torch::autograd::backward(of.roots, of.grads);
      },
      module_.is_trained(instruction.model_chunk));
  micro.input_grads = take_gradients(micro.inputs);
  forget_graph(instruction);
}

void BatchRun::backward_inputs(const Instruction& instruction) {
  Passage& micro = passage(instruction);
  const c10::AutoGradMode with_grad(true);
  Tensors outputs = micro.outputs, gradients = micro.output_grads;
  if (is_last_part(instruction)) {
    outputs = {driver_.scaled_root(micro.loss)};
    gradients = {at::ones_like(outputs.front())};
  }
  micro.input_grads = autograd::backward_inputs(outputs, gradients, micro.inputs, micro.later);
  forget_graph(instruction);
}

void BatchRun::forget_graph(const Instruction& instruction) {
  Passage& micro = passage(instruction);
  micro.outputs.clear();
  micro.output_grads.clear();
  micro.loss = at::Tensor();
  if (part_of(instruction) == 0) micro.inputs.clear();  // no gradients are sent
}

void BatchRun::backward_weights(const Instruction& instruction) {
  Passage& micro = passage(instruction);
  note_weight_backward();
  driver_.run_backward([&] { micro.later.run(); }, module_.is_trained(instruction.model_chunk));
}

}  // namespace deepspeed::pipe
