// Describes a pipeline's layers. Each is built only on the ranks of its stage, so a model larger than a
// rank's memory can be described.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/pipe/module/layer.h"
#include "deepspeed/pipe/module/tensor_call.h"

namespace deepspeed::pipe {

/// Holds a module that several layers of a stage share, from any front end.
struct TiedModule {
  std::string class_name;
  std::shared_ptr<void> module;
  EngineModel model;
};

/// Says how layers that share a module are made.
struct Tie {
  std::string key;                        // layers with the same key share one module
  std::vector<std::string> weight_attrs;  // parameters that stages keep equal, by their names in the module
  std::function<TiedModule()> make;       // makes the module, once on each stage that needs it
  std::function<TensorFunction(const TiedModule&)> bind;  // makes this layer's forward over the module
  bool has_forward_fn = false;  // not the module's own forward, so checkpoints have no file for the layer
};

namespace spec_detail {

template <class T>
struct Contained {
  using type = T;
};
template <class T>
requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>
struct Contained<T> {
  using type = typename T::ContainedType;
};
/// Names the class of a module; for a TORCH_MODULE holder, the class it holds.
template <class T>
using ModuleClass = typename Contained<T>::type;

/// Lists the parameter types of a module's forward(). `list` is void if forward() is a template or has
/// overloads.
template <class Module>
struct ForwardSignature {
  using list = void;
};
template <class Module>
requires requires { &Module::forward; }
struct ForwardSignature<Module> : call_detail::Signature<decltype(&Module::forward)> {};

template <class Module>
TensorFunction forward_of(const std::shared_ptr<Module>& module) {
  return [module, name = module->name()](const Tensors& inputs) {
    const auto call = [&](const auto&... tensors) -> decltype(module->forward(tensors...)) {
      return module->forward(tensors...);
    };
    return call_with_tensors<typename ForwardSignature<Module>::list>(call, inputs, name);
  };
}

/// Names the class of a forward function's first parameter; void if unknown.
template <class List>
struct First {
  using type = void;
};
template <class F, class... Rest>
struct First<call_detail::ParameterList<F, Rest...>> {
  using type = std::remove_cvref_t<F>;
};

/// Lists a forward function's parameters after the first one, the module; void if unknown.
template <class List>
struct WithoutFirst {
  using list = void;
};
template <class First, class... Rest>
struct WithoutFirst<call_detail::ParameterList<First, Rest...>> {
  using list = call_detail::ParameterList<Rest...>;
};

template <class Module, class F>
TensorFunction forward_by(const std::shared_ptr<Module>& module, F function) {
  using Parameters = typename WithoutFirst<call_detail::ParametersOf<F>>::list;
  return [module, function = std::move(function)](const Tensors& inputs) mutable {
    const auto call = [&](const auto&... tensors) -> decltype(function(*module, tensors...)) {
      return function(*module, tensors...);
    };
    return call_with_tensors<Parameters>(call, inputs, "the forward_fn of " + module->name());
  };
}

DEEPSPEED_API TensorFunction forward_of_any(const torch::nn::AnyModule& module);

/// Says whether a stage can build the module repeatedly from stored arguments.
template <class Module, class... Args>
concept IsBuiltOf =
    std::is_base_of_v<torch::nn::Module, Module> && std::constructible_from<Module, const Args&...>;

template <class Module, class... Args>
auto builder_of(Args... args) {
  return [args = std::make_tuple(std::move(args)...)] {
    return std::apply([](const auto&... each) { return std::make_shared<Module>(each...); }, args);
  };
}

template <class Part>
concept IsModulePointer = requires(Part part) {
  { part.get() } -> std::convertible_to<torch::nn::Module*>;
  requires !std::is_base_of_v<torch::detail::ModuleHolderIndicator, Part>;
};
/// Accepts modules and pointers to modules that a layer cannot keep alive.
template <class Part>
concept IsUnsharedModule = std::is_base_of_v<torch::nn::Module, std::remove_pointer_t<Part>> ||
    (IsModulePointer<Part> && !requires(Part part) { part.use_count(); });

}  // namespace spec_detail

/// Describes one layer in the list from which a PipelineModule is made. It can be a module (a shared_ptr, a
/// TORCH_MODULE holder or a torch::nn::AnyModule), a function over tensors, or a layer to be built later,
/// which of() describes. A layer takes and returns a tensor, several, or a struct or tuple of tensors.
class DEEPSPEED_API LayerSpec {
 public:
  /// Takes a layer of another front end. `build` may be called more than once.
  LayerSpec(std::string class_name, std::function<Layer()> build);
  /// Takes a module that exists already.
  template <spec_detail::IsModulePointer Part>
  requires(!spec_detail::IsUnsharedModule<Part>)
      LayerSpec(const Part& module)  // NOLINT: an element of a list of layers
      : LayerSpec(of_module(std::shared_ptr<typename Part::element_type>(module))) {}
  template <class Holder>
  requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, Holder> LayerSpec(
      const Holder& module)  // NOLINT
      : LayerSpec(of_module(module.ptr())) {}
  LayerSpec(const torch::nn::AnyModule& module);  // NOLINT
  /// Does not compile, and says what to pass instead.
  template <spec_detail::IsUnsharedModule Part>
  LayerSpec(const Part&) {  // NOLINT
    static_assert(!spec_detail::IsUnsharedModule<Part>,
                  "a layer is a std::shared_ptr to a module, its TORCH_MODULE holder or a "
                  "torch::nn::AnyModule, which the pipeline shares: make the module by std::make_shared");
  }
  /// Takes a function over tensors without parameters.
  template <class F>
  requires(!std::derived_from<F, LayerSpec> && !spec_detail::IsModulePointer<F> &&
           !std::is_base_of_v<torch::detail::ModuleHolderIndicator, F> &&
           !std::is_same_v<F, torch::nn::AnyModule> && !spec_detail::IsUnsharedModule<F>)
      LayerSpec(F function)  // NOLINT
      : LayerSpec(of_function(std::move(function))) {}

  /// Describes a module of this class, made from these arguments when its stage is built. `Module`: the class
  /// or its TORCH_MODULE holder.
  template <class Module, class... Args>
  static LayerSpec of(Args... args) {
    using Class = spec_detail::ModuleClass<Module>;
    static_assert(std::is_base_of_v<torch::nn::Module, Class>,
                  "LayerSpec only supports torch::nn::Module types");
    static_assert(
        !std::is_base_of_v<torch::nn::Module, Class> || spec_detail::IsBuiltOf<Class, Args...>,
        "LayerSpec::of<Module>(arguments...): the module has no public constructor that takes these "
        "arguments (as constants, since they are kept for each time that it is built), or is abstract");
    if constexpr (spec_detail::IsBuiltOf<Class, Args...>) {
      const auto make = spec_detail::builder_of<Class>(std::move(args)...);
      return {c10::demangle_type<Class>(), [make] {
                const auto module = make();
                return Layer{module->name(), spec_detail::forward_of(module), describe_module(module)};
              }};
    } else {
      return {"", nullptr};
    }
  }

  /// Makes the layer, or returns the one that was given. The ranks of the layer's stage keep the result. The
  /// division into stages may also build a layer, to count or time it. A stage makes its tied layers through
  /// tie() instead.
  Layer build() const;
  const std::string& class_name() const { return class_name_; }
  /// Returns whether the layer needs no build(), because its module or function was given.
  bool is_built() const { return is_built_; }
  const std::optional<Tie>& tie() const { return tie_; }

 protected:
  LayerSpec(std::string class_name, Tie tie);

 private:
  template <class Module>
  static LayerSpec of_module(const std::shared_ptr<Module>& module) {
    static_assert(!std::is_same_v<Module, torch::nn::Module>,
                  "a layer is a pointer to torch::nn::Module, which has no forward(): give a shared_ptr to "
                  "the class itself, its TORCH_MODULE holder, or a torch::nn::AnyModule");
    require_module(module.get());
    const EngineModel model = describe_module(module);
    return built({module->name(), spec_detail::forward_of(module), model});
  }
  template <class F>
  static LayerSpec of_function(F function) {
    const std::string name = c10::demangle_type<F>();
    const TensorFunction call = [function = std::move(function), name](const Tensors& inputs) mutable {
      return call_with_tensors<call_detail::ParametersOf<F>>(function, inputs, name);
    };
    return built({name, call, {}});
  }
  static LayerSpec built(Layer layer);
  static void require_module(const torch::nn::Module* module);

  std::string class_name_;
  std::function<Layer()> build_;
  std::optional<Tie> tie_;
  bool is_built_ = false;
};

/// Describes a layer that shares its module with layers of equal key on any stage. An example is an embedding
/// and the output projection. Gradients of the tied weights are summed over the stages.
class DEEPSPEED_API TiedLayerSpec : public LayerSpec {
 public:
  /// Takes a layer of another front end.
  TiedLayerSpec(std::string class_name, Tie tie) : LayerSpec(std::move(class_name), std::move(tie)) {}

  /// Describes a module of this class made from these arguments, run by its forward().
  template <class Module, class... Args>
  static TiedLayerSpec of(const std::string& key, Args... args) {
    using Class = spec_detail::ModuleClass<Module>;
    static_assert(std::is_base_of_v<torch::nn::Module, Class>,
                  "TiedLayerSpec only supports torch::nn::Module types");
    static_assert(
        !std::is_base_of_v<torch::nn::Module, Class> || spec_detail::IsBuiltOf<Class, Args...>,
        "TiedLayerSpec::of<Module>(key, arguments...): the module has no public constructor that takes these "
        "arguments (as constants, since they are kept for each time that it is built), or is abstract");
    if constexpr (spec_detail::IsBuiltOf<Class, Args...>) {
      return {c10::demangle_type<Class>(),
              {key, {"weight"}, make_tied<Class>(std::move(args)...), [key](const TiedModule& tied) {
                 require_class(tied, c10::demangle_type<Class>(), key);
                 return spec_detail::forward_of(std::static_pointer_cast<Class>(tied.module));
               }}};
    } else {
      return {"", Tie()};
    }
  }
  /// Runs the layer by forward_fn(module, inputs...). Its first parameter is a reference to the module's
  /// class: `[](torch::nn::EmbeddingImpl& embedding, at::Tensor hidden) { ... }`.
  template <class F>
  TiedLayerSpec forward_fn(F function) const {
    using Class = typename spec_detail::First<call_detail::ParametersOf<F>>::type;
    static_assert(std::is_base_of_v<torch::nn::Module, Class>,
                  "forward_fn is a function whose first parameter is a reference to the module's class");
    return with_forward([function = std::move(function), key = tie()->key](const TiedModule& tied) {
      require_class(tied, c10::demangle_type<Class>(), key);
      return spec_detail::forward_by(std::static_pointer_cast<Class>(tied.module), function);
    });
  }
  /// Names the weights that stages keep equal, as in the module: "weight", "decoder.weight".
  TiedLayerSpec tied_weight_attr(std::vector<std::string> names) const;

 private:
  template <class Class, class... Args>
  static std::function<TiedModule()> make_tied(Args... args) {
    return [make = spec_detail::builder_of<Class>(std::move(args)...)] {
      const auto module = make();
      return TiedModule{module->name(), module, describe_module(module)};
    };
  }
  TiedLayerSpec with_forward(std::function<TensorFunction(const TiedModule&)> bind) const;
  static void require_class(const TiedModule& tied, const std::string& class_name, const std::string& key);
};

/// Returns the layers in a sequence, in order.
DEEPSPEED_API std::vector<LayerSpec> layers_of(const torch::nn::Sequential& sequence);

}  // namespace deepspeed::pipe
