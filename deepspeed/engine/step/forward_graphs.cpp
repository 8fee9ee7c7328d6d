// A backward is captured with temporary gradient accumulators. The engine's own accumulators belong to an
// earlier stream and would draw that stream into the capture. They would also reduce gradients that have no
// values yet.
#include "deepspeed/engine/step/forward_graphs.h"

#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include "deepspeed/autograd/node_handle.h"
#include "deepspeed/base/error.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed {
namespace {

using device::DeviceGraph;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
namespace impl = torch::autograd::impl;

/// Replaces the parameters' gradient accumulators by fresh ones while it exists.
class OwnAccumulators {
 public:
  explicit OwnAccumulators(const variable_list& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_) {
      former_.push_back(impl::try_get_grad_accumulator(parameter));
      impl::set_grad_accumulator(parameter, autograd::weak(autograd::NodeHandle()));
    }
  }
  ~OwnAccumulators() {
    for (size_t i = 0; i < parameters_.size(); ++i)
      impl::set_grad_accumulator(parameters_[i], autograd::weak(former_[i]));
  }
  OwnAccumulators(const OwnAccumulators&) = delete;
  OwnAccumulators& operator=(const OwnAccumulators&) = delete;

 private:
  const variable_list& parameters_;
  std::vector<autograd::NodeHandle> former_;
};

/// Keeps a graph's autocast casts apart from all others. Autocast caches casts of weights within its scope. A
/// graph must not use earlier ones, nor leave its own behind.
struct OwnCasts {
  OwnCasts() { at::autocast::clear_cache(); }
  ~OwnCasts() { at::autocast::clear_cache(); }
  OwnCasts(const OwnCasts&) = delete;
  OwnCasts& operator=(const OwnCasts&) = delete;
};

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone().requires_grad_(tensor.requires_grad()) : at::Tensor();
}

constexpr const char* kWayOut = "; set cuda_graphs.enabled to false, which runs it kernel by kernel";

}  // namespace

ForwardGraphs::ForwardGraphs(const EngineModel& model, const ForwardCall& call, const RunForward& forward) {
  for (const auto* const tensors : {&model.parameters, &model.buffers}) {
    for (const NamedTensor& entry : *tensors) memory_.push_back(entry.tensor.storage());
  }
  for (const NamedTensor& parameter : model.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    if (!impl::hooks(parameter.tensor).empty()) {
      raise<UsageError>("cuda_graphs: ", parameter.name, " has a hook, which a graph would not run", kWayOut);
    }
    leaves_.push_back(parameter.tensor);
  }
  const size_t num_weights = leaves_.size();
  for (const at::Tensor& tensor : call.tensors) inputs_.push_back(copy_of(tensor));
  for (const at::Tensor& input : inputs_) {
    if (input.defined() && input.requires_grad()) leaves_.push_back(input);
  }
  const OwnAccumulators accumulators(leaves_);
  // The default stream cannot be captured.
  const device::SideStream stream(model.device(), device::SideStream::Use::kCapture);
  capture_forward(model.device(), stream, forward);
  capture_backward(model.device(), stream);
  for (at::Tensor& output : made_.tensors) {
    if (output.defined()) output = output.detach();
  }
  leaves_.resize(num_weights);  // a call's own inputs take the places of the captured ones
}

void ForwardGraphs::capture_forward(c10::Device device, const device::SideStream& stream,
                                    const RunForward& forward) {
  const c10::AutoGradMode with_grad(true);
  const OwnCasts casts;
  forward_ = DeviceGraph::capture(device, stream, [&] { made_ = forward(inputs_); });
  for (const at::Tensor& input : inputs_) {
    if (input.defined() && input._version() > 0)
      raise<UsageError>(
          "cuda_graphs: forward() writes a tensor that it was given, which a graph would do to a ",
          "copy of it", kWayOut);
  }
  for (size_t i = 0; i < made_.tensors.size(); ++i) {
    const at::Tensor& output = made_.tensors[i];
    if (!output.defined() || !output.requires_grad()) continue;
    with_gradient_.push_back(i);
    grad_outputs_.push_back(at::empty_like(output));
  }
}

void ForwardGraphs::capture_backward(c10::Device device, const device::SideStream& stream) {
  if (with_gradient_.empty()) return;
  variable_list outputs;
  for (const size_t i : with_gradient_) outputs.push_back(made_.tensors[i]);
  const auto work = [&] {
    gradients_ = torch::autograd::grad(outputs, leaves_, grad_outputs_, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true);
  };
  backward_ = DeviceGraph::capture(device, stream, work, forward_);
  for (const at::Tensor& gradient : gradients_) {
    if (gradient.defined() && gradient.layout() != at::kStrided)
      raise<UsageError>("cuda_graphs: the backward makes a sparse gradient, whose size only the device knows",
                        kWayOut);
  }
}

/// Stands for one replay of the forward graph, as a single autograd node.
class ForwardGraphs::Replay : public torch::autograd::Function<ForwardGraphs::Replay> {
 public:
  struct Run {
    std::shared_ptr<ForwardGraphs> graphs;
    int64_t number;
  };

  /// Returns copies of the replayed forward's outputs. leaves: tensors that receive the backward's gradients.
  static variable_list forward(AutogradContext* context, at::TensorList /*leaves*/,
                               std::shared_ptr<ForwardGraphs> graphs) {
    variable_list outputs, without_gradient;
    for (const at::Tensor& made : graphs->made_.tensors)
      outputs.push_back(made.defined() ? made.clone() : at::Tensor());
    auto next = graphs->with_gradient_.begin();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (next != graphs->with_gradient_.end() && *next == i) {
        ++next;
      } else if (outputs[i].defined()) {
        without_gradient.push_back(outputs[i]);
      }
    }
    context->mark_non_differentiable(without_gradient);
    save_value(context, Run{graphs, graphs->num_forwards_});
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const Run run = saved_value<Run>(context);
    ForwardGraphs& graphs = *run.graphs;
    if (c10::GradMode::is_enabled())
      raise<UsageError>("cuda_graphs: a backward with create_graph cannot go through a graph", kWayOut);
    if (run.number != graphs.num_forwards_) {
      raise<UsageError>(
          "cuda_graphs: this backward() belongs to a forward whose activations a later forward of ",
          "its shape has overwritten: call backward() before the next forward(), or set ",
          "cuda_graphs.enabled to false");
    }
    if (std::exchange(graphs.last_backward_, run.number) == run.number) {
      raise<UsageError>(
          "cuda_graphs: a second backward() of one forward, whose activations the first one has ",
          "given up; call forward() again, or set cuda_graphs.enabled to false");
    }
    for (size_t i = 0; i < graphs.with_gradient_.size(); ++i)
      graphs.grad_outputs_[i].copy_(grad_outputs[graphs.with_gradient_[i]]);
    graphs.backward_.replay();
    variable_list gradients = graphs.gradients_;
    gradients.emplace_back();  // for `graphs`, which is not a tensor
    return gradients;
  }
};

ForwardResult ForwardGraphs::run(const ForwardCall& call) {
  variable_list leaves = leaves_;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.tensors[i].defined()) continue;
    inputs_[i].detach().copy_(call.tensors[i].detach());
    if (call.tensors[i].requires_grad()) leaves.push_back(call.tensors[i]);
  }
  ++num_forwards_;
  forward_.replay();
  return {Replay::apply(at::TensorList(leaves), shared_from_this()), made_.frame};
}

}  // namespace deepspeed
