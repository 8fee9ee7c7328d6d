#include "deepspeed/pipe/module/layer_spec.h"

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

// An AnyModule knows only at run time what its module returns.
Tensors tensors_of(AnyValue value, const std::string& name) {
  if (auto* const tensor = value.try_get<at::Tensor>()) return {*tensor};
  if (auto* const list = value.try_get<Tensors>()) return *list;
  if (auto* const two = value.try_get<std::tuple<at::Tensor, at::Tensor>>()) return tensors_in(*two);
  if (auto* const three = value.try_get<std::tuple<at::Tensor, at::Tensor, at::Tensor>>())
    return tensors_in(*three);
  raise<UsageError>(name, " in a torch::nn::AnyModule returns a ", c10::demangle(value.type_info().name()),
                    ": give the module itself as a layer");
}

std::function<Layer()> builder_of(Layer layer) {
  return [layer = std::move(layer)] { return layer; };
}

}  // namespace

TensorFunction spec_detail::forward_of_any(const AnyModule& module) {
  return [module = AnyModule(module), name = module.ptr()->name()](const Tensors& inputs) mutable {
    const auto call = [&]<size_t... I>(std::index_sequence<I...>) {
      return tensors_of(module.any_forward(at::Tensor(inputs[I])...), name);
    };
    switch (inputs.size()) {
      case 1:
        return call(std::make_index_sequence<1>{});
      case 2:
        return call(std::make_index_sequence<2>{});
      case 3:
        return call(std::make_index_sequence<3>{});
      case 4:
        return call(std::make_index_sequence<4>{});
      default:
        break;
    }
    raise<UsageError>(name, " in a torch::nn::AnyModule got ", inputs.size(),
                      " tensors, expected 1 to 4: give the module itself as a layer");
  };
}

LayerSpec::LayerSpec(std::string class_name, std::function<Layer()> build)
    : class_name_(std::move(class_name)), build_(std::move(build)) {}

LayerSpec::LayerSpec(std::string class_name, Tie tie)
    : class_name_(std::move(class_name)), tie_(std::move(tie)) {
  if (tie_->key.empty()) raise<UsageError>("TiedLayerSpec: the key is empty");
}

LayerSpec::LayerSpec(const AnyModule& module) {
  require_module(module.is_empty() ? nullptr : module.ptr().get());
  *this = built({module.ptr()->name(), spec_detail::forward_of_any(module), describe_module(module.ptr())});
}

LayerSpec LayerSpec::built(Layer layer) {
  LayerSpec spec(layer.class_name, builder_of(layer));
  spec.is_built_ = true;
  return spec;
}

void LayerSpec::require_module(const torch::nn::Module* module) {
  if (module == nullptr) raise<UsageError>("a layer of a PipelineModule is null; pass a module");
}

Layer LayerSpec::build() const {
  if (tie_) {
    const TiedModule tied = tie_->make();
    return {tied.class_name, tie_->bind(tied), tied.model};
  }
  return build_();
}

TiedLayerSpec TiedLayerSpec::with_forward(std::function<TensorFunction(const TiedModule&)> bind) const {
  Tie changed = *tie();
  changed.bind = std::move(bind);
  changed.has_forward_fn = true;
  return {class_name(), std::move(changed)};
}

TiedLayerSpec TiedLayerSpec::tied_weight_attr(std::vector<std::string> names) const {
  if (names.empty()) raise<UsageError>("tied_weight_attr of the key '", tie()->key, "' is empty");
  Tie changed = *tie();
  changed.weight_attrs = std::move(names);
  return {class_name(), std::move(changed)};
}

void TiedLayerSpec::require_class(const TiedModule& tied, const std::string& class_name,
                                  const std::string& key) {
  if (tied.class_name == class_name) return;
  raise<UsageError>("the tied key '", key, "' is of a ", tied.class_name, ", and of a ", class_name,
                    " in another layer; expected one class");
}

std::vector<LayerSpec> layers_of(const torch::nn::Sequential& sequence) {
  std::vector<LayerSpec> layers;
  for (const AnyModule& module : *sequence) layers.emplace_back(module);
  return layers;
}

}  // namespace deepspeed::pipe
