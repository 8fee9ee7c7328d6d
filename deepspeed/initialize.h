// deepspeed::initialize and the typed shells that it returns.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/data/dataloader.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/model/cast_inputs.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/step/graphed_call.h"
#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/tensor/visit_tensors.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

/// Seeds the default generators alike on every rank: before the model is built, so that all ranks build the
/// same one. initialize() then gives each rank a stream of its own that follows from this seed.
DEEPSPEED_API void manual_seed(uint64_t seed);

template <class Module, class... Args>
concept TakesInForward = requires(Module& module, Args&&... args) {
  module.forward(std::forward<Args>(args)...);
};

namespace initialize_detail {

/// What stands where a static_assert has failed, so that nothing else is said of the line.
template <class R, class C, class... A>
R result_in_place_of(R (C::*)(A...));
template <class R, class C, class... A>
R result_in_place_of(R (C::*)(A...) const);
at::Tensor result_in_place_of(...);

}  // namespace initialize_detail

/// An engine that knows its model's class: forward() takes and returns what the model's forward() does.
template <class Module>
class DeepSpeedEngine : public Engine {
 public:
  /// `model` describes `module`, or the module inside of it (describe_module()).
  DeepSpeedEngine(std::shared_ptr<Module> module, EngineModel model, const InitializeOptions& options)
      : Engine(std::move(model), options), module_(std::move(module)) {}

  template <class... Args>
  auto forward(Args&&... args) {
    constexpr bool is_known = !std::is_same_v<Module, torch::nn::Module>;
    constexpr bool is_taken = TakesInForward<Module, Args...>;
    static_assert(is_known,
                  "the model is a pointer to torch::nn::Module, which has no forward(): give initialize() a "
                  "shared_ptr to the class itself, its TORCH_MODULE holder, or a torch::nn::AnyModule");
    static_assert(is_taken || !is_known, "the model's forward() does not take these arguments");
    if constexpr (is_taken) {
      return forward_of_model(std::forward<Args>(args)...);
    } else if constexpr (requires { &Module::forward; }) {
      return initialize_detail::result_in_place_of(&Module::forward);
    } else {
      return at::Tensor();
    }
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  Module& module() { return *module_; }
  const std::shared_ptr<Module>& module_ptr() const { return module_; }

  /// A loader over `dataset` for this rank. The loader whose position checkpoints carry is the one of
  /// initialize(); track_loader() chooses another. Throws UsageError for an unknown route.
  template <class Dataset, class Collate = StackExamples>
  auto deepspeed_io(Dataset dataset, const DeepSpeedIoOptions& options = {}, Collate collate_fn = {}) {
    return std::make_shared<DeepSpeedDataLoader<Dataset, Collate>>(
        std::move(dataset), this->loader_options(options), std::move(collate_fn));
  }

 private:
  template <class... Args>
  auto forward_of_model(Args&&... args) {
    const ForwardScope scope(driver());
    if constexpr (std::is_void_v<decltype(run_forward(std::forward<Args>(args)...))>) {
      run_forward(std::forward<Args>(args)...);
    } else {
      auto output = run_forward_as_asked(scope, std::forward<Args>(args)...);
      visit_tensors(output, [&](at::Tensor& tensor) { tensor = scope.output(tensor); });
      return output;
    }
  }

  /// The model's forward, as a graph where the config asks for it.
  template <class... Args>
  auto run_forward_as_asked(const ForwardScope& scope, Args&&... args) {
    using Output = decltype(run_forward(std::forward<Args>(args)...));
    const auto forward = [this](auto&... own) { return run_forward(own...); };
    if constexpr (std::is_copy_constructible_v<Output> && requires { forward(args...); }) {
      if (scope.has_graphs()) return run_graphed<Output>(scope, forward, std::decay_t<Args>(args)...);
    }
    return run_forward(std::forward<Args>(args)...);
  }

  /// The model's forward, with its arguments in half where fp16.auto_cast asks for it.
  template <class... Args, class Model = Module>
  auto run_forward(Args&&... args) -> decltype(std::declval<Model&>().forward(std::forward<Args>(args)...)) {
    try {
      if (!casts_inputs()) return module_->forward(std::forward<Args>(args)...);
      if constexpr (requires(Module & module) {
                      module.forward(cast_input(at::kHalf, std::forward<Args>(args))...);
                    }) {
        return module_->forward(cast_input(at::kHalf, std::forward<Args>(args))...);
      } else {
        raise<UsageError>("fp16.auto_cast: the model's forward() takes an argument that it changes");
      }
    } catch (const c10::Error& error) {
      explain_forward_error(*this, error);
      throw;
    }
  }

  bool casts_inputs() const { return config().fp16.enabled && config().fp16.auto_cast; }

  std::shared_ptr<Module> module_;
};

/// What initialize() returns, for `auto [engine, optimizer, training_dataloader, lr_scheduler] =
/// initialize(...)` or by name: `initialize(...).engine`.
template <class Module, class Loader = void>
struct Initialized {
  std::shared_ptr<DeepSpeedEngine<Module>> engine;
  std::shared_ptr<zero::ZeroOptimizer> optimizer;    // null: none was asked for, evaluation only
  std::shared_ptr<Loader> training_dataloader;       // null without training data
  std::shared_ptr<optim::LrScheduler> lr_scheduler;  // null: none was asked for
};

namespace initialize_detail {

/// A module that an engine cannot hold on to: the object itself, a pointer to it, a unique_ptr.
template <class Model>
concept IsUnsharedModule = std::is_base_of_v<torch::nn::Module, Model> ||
    (!std::is_base_of_v<torch::detail::ModuleHolderIndicator, Model> && requires(const Model& model) {
      { *model } -> std::convertible_to<const torch::nn::Module&>;
      requires !requires { model.use_count(); };
    });

template <class Model>
void refuse() {
  static_assert(!IsUnsharedModule<Model>,
                "the model of initialize() is a std::shared_ptr to a module, its TORCH_MODULE holder or a "
                "torch::nn::AnyModule, which the engine shares: make it by std::make_shared");
}

template <class Module>
Initialized<Module> make_engine(std::shared_ptr<Module> module, EngineModel model,
                                const InitializeOptions& options) {
  auto engine = std::make_shared<DeepSpeedEngine<Module>>(std::move(module), std::move(model), options);
  return {engine, engine->optimizer(), nullptr, engine->lr_scheduler()};
}

template <class Module, class Dataset, class Collate>
Initialized<Module, DeepSpeedDataLoader<Dataset, Collate>> make_engine(std::shared_ptr<Module> module,
                                                                       EngineModel model,
                                                                       Dataset training_data,
                                                                       const InitializeOptions& options,
                                                                       Collate collate_fn) {
  auto engine = std::make_shared<DeepSpeedEngine<Module>>(std::move(module), std::move(model), options);
  auto loader = engine->deepspeed_io(std::move(training_data), {}, std::move(collate_fn));
  engine->track_loader(loader->position());
  return {engine, engine->optimizer(), std::move(loader), engine->lr_scheduler()};
}

inline EngineModel describe(const torch::nn::AnyModule& model) {
  return describe_module(model.is_empty() ? nullptr : model.ptr());
}

}  // namespace initialize_detail

/// Makes an engine for `model`, whose parameters keep their identity. Throws ConfigError, naming the key, and
/// UsageError.
template <class Module>
requires std::is_base_of_v<torch::nn::Module, Module>
auto initialize(std::shared_ptr<Module> model, const InitializeOptions& options) {
  EngineModel described = describe_module(model);
  return initialize_detail::make_engine(std::move(model), std::move(described), options);
}

/// Makes an engine and a loader over `training_data`, whose batches `collate_fn` makes (default:
/// stack_examples()).
template <class Module, class Dataset, class Collate = StackExamples>
requires std::is_base_of_v<torch::nn::Module, Module>
auto initialize(std::shared_ptr<Module> model, Dataset training_data, const InitializeOptions& options,
                Collate collate_fn = {}) {
  EngineModel described = describe_module(model);
  return initialize_detail::make_engine(std::move(model), std::move(described), std::move(training_data),
                                        options, std::move(collate_fn));
}

/// Makes an engine for a model in a TORCH_MODULE holder, as torch's own layers are.
template <class Module>
auto initialize(const torch::nn::ModuleHolder<Module>& model, const InitializeOptions& options) {
  return initialize(model.is_empty() ? nullptr : model.ptr(), options);
}
template <class Module, class Dataset, class Collate = StackExamples>
auto initialize(const torch::nn::ModuleHolder<Module>& model, Dataset training_data,
                const InitializeOptions& options, Collate collate_fn = {}) {
  return initialize(model.is_empty() ? nullptr : model.ptr(), std::move(training_data), options,
                    std::move(collate_fn));
}

/// Makes an engine for a model whose class is known at run time alone: forward() takes and returns what
/// torch::nn::AnyModule's does, a Tensor where nothing else is said.
inline auto initialize(const torch::nn::AnyModule& model, const InitializeOptions& options) {
  return initialize_detail::make_engine(std::make_shared<torch::nn::AnyModule>(model),
                                        initialize_detail::describe(model), options);
}
template <class Dataset, class Collate = StackExamples>
auto initialize(const torch::nn::AnyModule& model, Dataset training_data, const InitializeOptions& options,
                Collate collate_fn = {}) {
  return initialize_detail::make_engine(std::make_shared<torch::nn::AnyModule>(model),
                                        initialize_detail::describe(model), std::move(training_data), options,
                                        std::move(collate_fn));
}

/// Does not compile, and says what to give instead.
template <initialize_detail::IsUnsharedModule Model>
Initialized<torch::nn::AnyModule> initialize(const Model&, const InitializeOptions&) {
  initialize_detail::refuse<Model>();
  return {};
}
template <initialize_detail::IsUnsharedModule Model, class Dataset, class Collate = StackExamples>
Initialized<torch::nn::AnyModule, DeepSpeedDataLoader<Dataset, Collate>> initialize(const Model&,
                                                                                    const Dataset&,
                                                                                    const InitializeOptions&,
                                                                                    const Collate& = {}) {
  initialize_detail::refuse<Model>();
  return {};
}

}  // namespace deepspeed
