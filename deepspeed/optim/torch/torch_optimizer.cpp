// A torch optimizer steps flat slices by having its parameters replaced with stand-ins.
//
// Construction reads the groups' options and names, refuses an optimizer that has made steps, and removes its
// parameters. At a slice's first step, tensors over the slice's memory become parameters of the torch
// optimizer (stand_ins_of()). There is one for the slice if the class is elementwise, otherwise one per whole
// parameter. They exist as long as the optimizer, since torch's state is keyed by them. When the slice's
// memory moves, they are pointed at the new memory. step() writes the options, gives the slice's stand-ins
// their gradient, and steps the optimizer, which skips stand-ins without one. Classes of this library bypass
// all that: their own flat optimizer steps (native_).
#include "deepspeed/optim/torch/torch_optimizer.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/slice_states.h"
#include "deepspeed/optim/slices/whole_parameters.h"
#include "deepspeed/optim/torch/native_optimizer.h"
#include "deepspeed/optim/torch/torch_optimizer_class.h"

namespace deepspeed::optim {
namespace {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

std::string class_name(const torch::optim::Optimizer& optimizer) {
  const std::string full = c10::demangle(typeid(optimizer).name());
  const size_t colon = full.rfind("::");
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

void check_fresh(torch::optim::Optimizer& optimizer, const TorchOptimizerClass* known) {
  for (const auto& [parameter, state] : optimizer.state()) {
    // Adagrad makes its state at construction.
    const bool fresh =
        known != nullptr && std::string(known->name) == "Adagrad" && known->read_state(*state).step == 0;
    if (!fresh) {
      raise<UsageError>("the optimizer has made steps already; pass a new one and load its state");
    }
  }
}

std::string name_of(const at::Tensor& parameter, const NamedParameters& named) {
  const auto it = std::find_if(named.begin(), named.end(), [&](const auto& item) {
    return item.second.unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl();
  });
  if (it == named.end()) {
    raise<UsageError>("the optimizer holds a parameter of shape ", parameter.sizes(),
                      " that is not one of the model's; make it from model->parameters()");
  }
  return it->first;
}

// Checks the optimizer before its groups are passed to the base class.
torch::optim::Optimizer& require(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  if (optimizer == nullptr) {
    raise<UsageError>("the optimizer is null; pass one, or name one in the config");
  }
  if (dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) != nullptr) {
    raise<NotSupportedError>("LBFGS evaluates the loss within its step, which an engine cannot; ",
                             "use a first-order optimizer");
  }
  return *optimizer;
}

std::vector<ParamGroup> read_groups(torch::optim::Optimizer& optimizer, const NamedParameters& named) {
  const TorchOptimizerClass* known = find_torch_optimizer_class(optimizer);
  const bool native = dynamic_cast<const NativeOptimizer*>(&optimizer) != nullptr;
  const auto native_groups = native ? flat_groups(optimizer) : std::vector<ParamGroup>();
  std::vector<ParamGroup> groups;
  for (const auto& torch_group : optimizer.param_groups()) {
    ParamGroup group;
    if (native) {
      group.options = native_groups[groups.size()].options;
    } else if (known != nullptr) {
      known->read_options(torch_group.options(), group.options);
    } else {
      group.set_lr(torch_group.options().get_lr());
    }
    for (const at::Tensor& parameter : torch_group.params()) {
      group.param_names.push_back(name_of(parameter, named));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// Returns one tensor per segment, in the parameter's shape, over the memory of `flat`.
std::vector<at::Tensor> cut(const FlatSlice& slice, const at::Tensor& flat) {
  std::vector<at::Tensor> views;
  for (const Segment& segment : whole_parameters(slice)) {
    views.push_back(flat.narrow(0, segment.in_slice.begin, segment.in_slice.numel()).view(segment.shape));
  }
  return views;
}

std::vector<at::Tensor> stand_in_views(const FlatSlice& slice, const at::Tensor& flat, bool elementwise) {
  return elementwise ? std::vector<at::Tensor>{flat} : cut(slice, flat);
}

// Makes the flat optimizer of a class of this library; null for any other class.
std::unique_ptr<Optimizer> make_native(const torch::optim::Optimizer& optimizer,
                                       const std::vector<ParamGroup>& groups) {
  const auto* native = dynamic_cast<const NativeOptimizer*>(&optimizer);
  if (native == nullptr) {
    return nullptr;
  }
  if (native->state_bytes() > 0) {
    raise<UsageError>("the optimizer has made steps already; pass a new one and load its state");
  }
  for (const ParamGroup& group : groups) {
    if (group.options.contains("max_grad_norm") && group.options.number("max_grad_norm") > 0) {
      raise<UsageError>("max_grad_norm is not accepted in an engine; set gradient_clipping in the config");
    }
  }
  return native->make_flat(groups);
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                               const NamedParameters& named)
    : Optimizer(read_groups(require(optimizer), named)),
      optimizer_(std::move(optimizer)),
      native_(make_native(*optimizer_, param_groups())),
      class_(find_torch_optimizer_class(*optimizer_)) {
  check_fresh(*optimizer_, class_);
  optimizer_->state().clear();
  for (auto& group : optimizer_->param_groups()) {
    group.params().clear();
  }
}

TorchOptimizer::TorchOptimizer(std::vector<ParamGroup> groups,
                               std::shared_ptr<torch::optim::Optimizer> optimizer)
    : Optimizer(std::move(groups)),
      optimizer_(std::move(optimizer)),
      class_(find_torch_optimizer_class(require(optimizer_))) {
  require_known_state("keep");
  if (optimizer_->param_groups().size() != param_groups().size()) {
    raise<UsageError>("the optimizer has ", optimizer_->param_groups().size(), " groups, expected ",
                      param_groups().size());
  }
}

TorchOptimizer::~TorchOptimizer() = default;

std::string TorchOptimizer::name() const { return native_ ? native_->name() : class_name(*optimizer_); }

bool TorchOptimizer::is_elementwise() const {
  return native_ ? native_->is_elementwise() : class_ != nullptr;
}

bool TorchOptimizer::steps_cut_parameters() const {
  return native_ ? native_->steps_cut_parameters() : is_elementwise();
}

at::ScalarType TorchOptimizer::state_dtype() const { return native_ ? native_->state_dtype() : at::kFloat; }

TorchOptimizer::StandIns& TorchOptimizer::stand_ins_of(const FlatSlice& slice) {
  StandIns& stand_ins = stand_ins_[slice.id];
  const auto views = stand_in_views(slice, slice.master.detach(), is_elementwise());
  if (!stand_ins.tensors.empty()) {
    for (size_t i = 0; i < views.size(); ++i) {
      if (stand_ins.tensors.at(i).numel() != views[i].numel()) {
        raise<UsageError>("slice ", slice.id, " changed its size from ", stand_ins.tensors[i].numel(), " to ",
                          views[i].numel());
      }
      stand_ins.tensors[i].set_data(
          views[i]);  // the memory may have moved, and torch's state is keyed by the tensor
    }
    return stand_ins;
  }
  auto& group = optimizer_->param_groups()[slice.group];
  for (const at::Tensor& view : views) {
    stand_ins.tensors.push_back(view.detach());
    group.params().push_back(stand_ins.tensors.back());
    if (class_ == nullptr) {
      continue;
    }
    auto state = class_->initial_state(group.options(), view);
    if (!stand_ins.loaded.tensors.empty()) {
      check_state_numel(slice, stand_ins.loaded.tensors[0].second);
      for (auto& [name, tensor] : stand_ins.loaded.tensors) {
        tensor = tensor.to(slice.master.options());
      }
      state = class_->make_state(stand_ins.loaded);
    }
    if (state != nullptr) {
      optimizer_->state()[stand_ins.tensors.back().unsafeGetTensorImpl()] = std::move(state);
    }
  }
  stand_ins.loaded = {};
  return stand_ins;
}

void TorchOptimizer::write_options(size_t group) {
  auto& options = optimizer_->param_groups()[group].options();
  if (class_ != nullptr) {
    class_->write_options(param_groups()[group].options, options);
  } else {
    options.set_lr(param_groups()[group].lr());
  }
}

void TorchOptimizer::step(const FlatSlice& slice, double gradient_scale) {
  if (slice.group >= param_groups().size()) {
    raise<UsageError>("slice ", slice.id, " names group ", slice.group, " of ", param_groups().size());
  }
  if (native_) {
    set_options(param_groups()[slice.group].options, native_->param_groups()[slice.group]);
    native_->step(slice, gradient_scale);
    return;
  }
  write_options(slice.group);
  StandIns& stand_ins = stand_ins_of(slice);
  const at::Tensor gradient = slice.gradient.detach().to(slice.master.scalar_type());
  const auto gradients = stand_in_views(
      slice,
      slice.scale_on_device.defined() ? gradient.mul(slice.scale_on_device) : gradient.mul(gradient_scale),
      is_elementwise());
  for (size_t i = 0; i < gradients.size(); ++i) {
    stand_ins.tensors[i].mutable_grad() = gradients[i];
  }
  optimizer_->step();  // skips tensors of other slices, which have no gradient
  for (at::Tensor& tensor : stand_ins.tensors) {
    tensor.mutable_grad().reset();
  }
  ++stand_ins.step;
  if (slice.low_precision.defined()) {
    slice.low_precision.detach().copy_(slice.master.detach());
  }
}

void TorchOptimizer::require_known_state(const char* what) const {
  if (class_ == nullptr) {
    raise<NotSupportedError>("cannot ", what, " the state of the class ", name(),
                             "; known are Adam, AdamW, SGD, RMSprop, Adagrad");
  }
}

SliceState TorchOptimizer::state(size_t slice_id) const {
  if (native_) {
    return native_->state(slice_id);
  }
  require_known_state("read");
  const auto it = stand_ins_.find(slice_id);
  if (it == stand_ins_.end()) {
    return {};
  }
  SliceState state = it->second.loaded;
  if (!it->second.tensors.empty()) {
    const auto& states = std::as_const(*optimizer_).state();
    const auto found = states.find(it->second.tensors[0].unsafeGetTensorImpl());
    state = found == states.end() ? SliceState{} : class_->read_state(*found->second);
  }
  state.step = it->second.step;
  return state;
}

void TorchOptimizer::check_state(const SliceState& state) const {
  if (native_) return native_->check_state(state);
  require_known_state("load");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.push_back(name);
  check_state_names(state, names);
  if (!state.tensors.empty()) class_->make_state(state);  // checks the names
}

void TorchOptimizer::load_state(size_t slice_id, const SliceState& state) {
  if (native_) {
    native_->load_state(slice_id, state);
    return;
  }
  require_known_state("load");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) {
    names.push_back(name);
  }
  const auto copies = copy_state(state, names, at::kFloat);
  SliceState loaded;
  loaded.step = state.step;
  for (size_t i = 0; i < names.size(); ++i) {
    loaded.tensors.emplace_back(names[i], copies[i]);
  }
  auto torch_state = loaded.tensors.empty() ? nullptr : class_->make_state(loaded);  // checks the names
  StandIns& stand_ins = stand_ins_[slice_id];
  if (stand_ins.tensors.empty()) {
    stand_ins.loaded = std::move(loaded);
  } else {
    const at::Tensor& tensor = stand_ins.tensors[0];
    if (torch_state != nullptr && copies[0].numel() != tensor.numel()) {
      raise<UsageError>("slice ", slice_id, " has ", tensor.numel(), " elements, the state has ",
                        copies[0].numel());
    }
    optimizer_->state().erase(tensor.unsafeGetTensorImpl());
    if (torch_state != nullptr) {
      optimizer_->state()[tensor.unsafeGetTensorImpl()] = std::move(torch_state);
    }
  }
  stand_ins.step = state.step;
}

int64_t TorchOptimizer::state_bytes() const {
  if (native_) {
    return native_->state_bytes();
  }
  int64_t bytes = 0;
  for (const auto& [id, stand_ins] : stand_ins_) {
    if (class_ != nullptr) {
      for (const auto& [name, tensor] : state(id).tensors) {
        bytes += static_cast<int64_t>(tensor.nbytes());
      }
    }
  }
  return bytes;
}

std::unique_ptr<Optimizer> make_torch_rmsprop(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-2},
                        {"alpha", 0.99},
                        {"eps", 1e-8},
                        {"weight_decay", 0.0},
                        {"momentum", 0.0},
                        {"centered", false}});
  const std::vector<torch::optim::OptimizerParamGroup> empty(
      groups.size(), torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{}));
  return std::make_unique<TorchOptimizer>(std::move(groups), std::make_shared<torch::optim::RMSprop>(empty));
}

}  // namespace deepspeed::optim
