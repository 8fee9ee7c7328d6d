#include "deepspeed/activation/checkpoint_function.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/activation/computing_state.h"
#include "deepspeed/activation/configure.h"
#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/base/error.h"

namespace deepspeed::checkpointing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the second run needs beside the inputs.
struct Run {
  TensorFunction function;
  std::shared_ptr<const Keeping> keeping;
  GeneratorStates generators;
  AutocastState autocast;
  std::vector<KeptInput> kept;
  std::vector<bool> needs_grad;
};

Tensors run_again(const Run& run, const variable_list& saved, Tensors& inputs) {
  for (size_t place = 0; place < saved.size(); ++place) {
    const at::Tensor whole = restore_input(run.kept[place], saved[place], *run.keeping);
    inputs.push_back(whole.defined() ? whole.detach().requires_grad_(run.needs_grad[place]) : whole);
  }
  const c10::AutoGradMode with_grad(true);
  const GeneratorScope generators(run.generators);
  const AutocastScope autocast(run.autocast);
  return run.function(inputs);
}

// Runs the backward of the second run. In a backward that comes in two halves, the second half joins the
// others.
void run_backward(const Tensors& outputs, const variable_list& gradients, const Tensors& inputs) {
  variable_list roots, grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    grads.push_back(gradients[i]);
  }
  if (roots.empty()) return;
  autograd::WeightBackward* const later = autograd::current_weight_backward();
  if (later == nullptr) return torch::autograd::backward(roots, grads);
  const Tensors of_inputs = autograd::backward_inputs(roots, grads, inputs, *later);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (of_inputs[i].defined()) inputs[i].mutable_grad() = of_inputs[i];
  }
}

struct Reentrant : torch::autograd::Function<Reentrant> {
  static variable_list forward(AutogradContext* context, const std::shared_ptr<Run>& run,
                               at::TensorList inputs) {
    variable_list saved;
    for (size_t place = 0; place < inputs.size(); ++place) {
      run->needs_grad.push_back(inputs[place].defined() && inputs[place].requires_grad());
      run->kept.push_back(keep_input(inputs[place], place, *run->keeping));
      saved.push_back(std::exchange(run->kept.back().kept, at::Tensor()));
    }
    context->save_for_backward(saved);
    context->saved_data["run"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(run));
    variable_list outputs;
    for (const at::Tensor& output : run->function(inputs.vec())) outputs.push_back(output);
    variable_list without_grad;
    for (const at::Tensor& output : outputs) {
      if (output.defined() && !output.is_floating_point() && !output.is_complex())
        without_grad.push_back(output);
    }
    context->mark_non_differentiable(without_grad);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["run"].toCapsule();
    const Run& run = *static_cast<Holder&>(*held).run;
    Tensors inputs;
    const Tensors outputs = run_again(run, context->get_saved_variables(), inputs);
    run_backward(outputs, gradients, inputs);
    variable_list of_inputs = {at::Tensor()};  // of the run
    for (const at::Tensor& input : inputs) of_inputs.push_back(input.defined() ? input.grad() : at::Tensor());
    return of_inputs;
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<Run> held) : run(std::move(held)) {}
    std::shared_ptr<Run> run;
  };
};

}  // namespace

Tensors CheckpointFunction::apply(const TensorFunction& function, const Tensors& inputs) {
  if (!c10::GradMode::is_enabled()) return function(inputs);
  const auto run = std::make_shared<Run>(
      Run{function, current_keeping(), GeneratorStates::now(), AutocastState::now(), {}, {}});
  return Reentrant::apply(run, at::TensorList(inputs));
}

}  // namespace deepspeed::checkpointing
