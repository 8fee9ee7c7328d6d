// Steps each parameter of a torch optimizer as a slice of a flat one.
//
// step() runs the closure, copies the groups' options into the flat optimizer (flat()), and checks and steps
// each parameter that has a gradient (step_slice()). If a parameter is contiguous and fp32 or fp64, its
// memory is the slice. Otherwise a widened, contiguous copy is stepped and written back. A parameter gets its
// slice number at its first step; the number is the key of its state in the flat optimizer.
#include "deepspeed/optim/torch/native_optimizer.h"

#include <typeinfo>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {
namespace {

// Throws for options of another class, since add_param_group() accepts any.
const NativeOptions& native_options(const torch::optim::OptimizerParamGroup& group) {
  const torch::optim::OptimizerOptions& given = group.options();
  const auto* options = dynamic_cast<const NativeOptions*>(&given);
  if (options == nullptr) {
    raise<UsageError>("the options of a parameter group are ", c10::demangle(typeid(given).name()),
                      ", expected those of the optimizer's own class, such as deepspeed::FusedAdamOptions");
  }
  return *options;
}

bool is_full(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

bool is_supported(at::ScalarType dtype) {
  return is_full(dtype) || dtype == at::kHalf || dtype == at::kBFloat16;
}

at::Tensor flat_gradient(const at::Tensor& parameter) {
  at::Tensor gradient = parameter.grad().detach();
  if (gradient.is_sparse()) {
    gradient = gradient.to_dense();
  }
  if (!is_supported(gradient.scalar_type())) {
    raise<UsageError>("the gradient of a parameter of shape ", parameter.sizes(), " has dtype ",
                      gradient.scalar_type(), ", expected Float, Double, Half or BFloat16");
  }
  return gradient.contiguous().view({-1});
}

}  // namespace

std::vector<ParamGroup> flat_groups(const torch::optim::Optimizer& optimizer) {
  std::vector<ParamGroup> groups;
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back({native_options(group).hyperparameters(), {}});
  }
  return groups;
}

void set_options(const Hyperparameters& from, ParamGroup& group) {
  for (const auto& [name, value] : from.items()) {
    group.options.set(name, value);
  }
}

NativeOptimizer::NativeOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 std::unique_ptr<NativeOptions> defaults)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>(), std::move(defaults)) {
  for (const auto& group : groups) add_param_group(group);
}

NativeOptimizer::~NativeOptimizer() = default;

void NativeOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  torch::optim::Optimizer::add_param_group(group);
  if (group.has_options()) param_groups().back().set_options(group.options().clone());
}

void NativeOptimizer::check_groups() const {
  for (const auto& group : param_groups()) {
    check_options(native_options(group));
  }
}

void NativeOptimizer::check_supported(const at::Tensor& parameter, bool takes_sparse_gradients) const {
  if (parameter.layout() != at::kStrided || !is_supported(parameter.scalar_type())) {
    raise<UsageError>(name(), ": a parameter of shape ", parameter.sizes(), " has dtype ",
                      parameter.scalar_type(), " and layout ", parameter.layout(),
                      ", expected Float, Double, Half or BFloat16, and Strided; leave it out of the groups");
  }
  if (parameter.grad().is_sparse() && !takes_sparse_gradients) {
    raise<UsageError>(name(), " takes no sparse gradients; make the layer with sparse gradients off, or use ",
                      "DeepSpeedCPUAdagrad without weight decay");
  }
}

double NativeOptimizer::gradient_scale(const torch::optim::OptimizerParamGroup&) const { return 1.0; }

FlatOptimizer& NativeOptimizer::flat() {
  check_groups();
  if (flat_ == nullptr) {
    flat_ = make_flat(flat_groups(*this));
  }
  auto& flat_param_groups = flat_->param_groups();
  flat_param_groups.resize(param_groups().size());
  for (size_t i = 0; i < flat_param_groups.size(); ++i) {
    set_options(native_options(param_groups()[i]).hyperparameters(), flat_param_groups[i]);
  }
  return *flat_;
}

size_t NativeOptimizer::slice_id(const at::Tensor& parameter) {
  const auto [it, is_new] = slice_ids_.try_emplace(parameter.unsafeGetTensorImpl(), num_slices_);
  num_slices_ += is_new ? 1 : 0;
  return it->second;
}

std::optional<size_t> NativeOptimizer::find_slice_id(const at::Tensor& parameter) const {
  const auto it = slice_ids_.find(parameter.unsafeGetTensorImpl());
  return it == slice_ids_.end() ? std::nullopt : std::optional(it->second);
}

std::string NativeOptimizer::name() const {
  return flat_ != nullptr ? flat_->name() : make_flat(flat_groups(*this))->name();
}

void NativeOptimizer::step_slice(size_t slice_id, size_t group, const at::Tensor& parameter, double scale) {
  check_parameter(parameter, native_options(param_groups()[group]));
  const at::Tensor weights = parameter.detach();
  const at::ScalarType dtype = is_full(weights.scalar_type()) ? weights.scalar_type() : at::kFloat;
  const bool in_place = weights.scalar_type() == dtype && weights.is_contiguous();
  const std::vector<Segment> segments{{0, {0, weights.numel()}, 0, weights.sizes().vec()}};
  FlatSlice slice;
  slice.id = slice_id;
  slice.group = group;
  slice.master = in_place ? weights.view({-1}) : weights.to(dtype).contiguous().view({-1});
  slice.gradient = flat_gradient(parameter);
  slice.segments = &segments;
  flat_->step(slice, scale);
  if (!in_place) {
    weights.copy_(slice.master.view(weights.sizes()));
  }
}

at::Tensor NativeOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  flat();
  for (size_t g = 0; g < param_groups().size(); ++g) {
    const double scale = gradient_scale(param_groups()[g]);
    for (const at::Tensor& parameter : param_groups()[g].params()) {
      if (parameter.grad().defined()) {
        step_slice(slice_id(parameter), g, parameter, scale);
      }
    }
  }
  return loss;
}

void NativeOptimizer::check_is_parameter(const at::Tensor& parameter) const {
  for (const auto& group : param_groups()) {
    for (const at::Tensor& own : group.params()) {
      if (own.unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl()) {
        return;
      }
    }
  }
  raise<UsageError>("a tensor of shape ", parameter.sizes(),
                    " is no parameter of this optimizer; add it with add_param_group() first");
}

SliceState NativeOptimizer::state_of(const at::Tensor& parameter) const {
  check_is_parameter(parameter);
  const auto id = find_slice_id(parameter);
  return flat_ == nullptr || !id ? SliceState{} : flat_->state(*id);
}

void NativeOptimizer::load_state_of(const at::Tensor& parameter, const SliceState& state) {
  check_is_parameter(parameter);
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.numel() != parameter.numel()) {
      raise<UsageError>("state tensor '", name, "' has ", tensor.numel(), " elements, the parameter has ",
                        parameter.numel());
    }
  }
  flat().load_state(slice_id(parameter), state);
}

int64_t NativeOptimizer::state_bytes() const { return flat_ == nullptr ? 0 : flat_->state_bytes(); }

}  // namespace deepspeed::optim
