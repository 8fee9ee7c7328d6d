#include "deepspeed/engine/step/graphed_forward.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed {
namespace {

CallShape shape_of(const ForwardCall& call) {
  CallShape shape{call.rest, {}};
  for (const at::Tensor& tensor : call.tensors) {
    if (tensor.defined()) {
      shape.tensors.push_back({tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec()});
    } else {
      shape.tensors.emplace_back();
    }
  }
  return shape;
}

}  // namespace

GraphedForward::GraphedForward(const EngineModel& model, const config::CudaGraphsConfig& options)
    : model_(model), options_(options) {
  if (!model.device().is_cuda()) {
    raise<ConfigError>("cuda_graphs.enabled: got true for a model on ", model.device(),
                       ", expected false, or a CUDA device");
  }
}

std::vector<const void*> GraphedForward::places() const {
  std::vector<const void*> places;
  for (const NamedTensor& parameter : model_.parameters) {
    places.push_back(parameter.tensor.const_data_ptr());
    places.push_back(parameter.tensor.requires_grad() ? parameter.tensor.unsafeGetTensorImpl() : nullptr);
  }
  for (const NamedTensor& buffer : model_.buffers) places.push_back(buffer.tensor.const_data_ptr());
  return places;
}

ForwardResult GraphedForward::run(const ForwardCall& call, const RunForward& forward) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (call.tensors[i].defined() && call.tensors[i].device() != model_.device()) {
      raise<UsageError>("cuda_graphs: tensor ", i, " of forward() lies on ", call.tensors[i].device(),
                        ", expected ", model_.device(), ", where a graph can read it");
    }
  }
  if (std::vector<const void*> now = places(); now != captured_places_) {
    for (auto& [key, shape] : shapes_) shape.graphs.reset();
    captured_places_ = std::move(now);
  }
  const CallShape key = shape_of(call);
  if (!shapes_.contains(key) && int64_t(shapes_.size()) >= options_.max_shapes) {
    if (!std::exchange(has_warned_, true)) {
      log::warning("[engine] forward() was called with more than cuda_graphs.max_shapes, ",
                   options_.max_shapes,
                   ", different shapes: the others run without graphs; this is logged once");
    }
    return forward(call.tensors);
  }
  Shape& shape = shapes_[key];
  if (shape.num_runs < options_.warmup_steps) {
    ++shape.num_runs;
    return forward(call.tensors);
  }
  if (!shape.graphs) {
    try {
      shape.graphs = std::make_shared<ForwardGraphs>(model_, call, forward);
    } catch (const c10::Error& error) {
      raise<UsageError>("cuda_graphs: the model's forward, or its backward, cannot be captured: ",
                        error.what_without_backtrace(),
                        "; set cuda_graphs.enabled to false, which runs it kernel by kernel");
    }
  }
  return shape.graphs->run(call);
}

}  // namespace deepspeed
