// deepspeed::initialize and the typed wrappers that it returns.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/step/graphed_call.h"
#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/tensor/visit_tensors.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

/// Seeds the default generators equally on every rank, so that all build the same model. Call it before the
/// model is built. initialize() then gives each rank a stream of its own, derived from this seed.
DEEPSPEED_API void manual_seed(uint64_t seed);

template <class Module, class... Args>
concept TakesInForward = requires(Module& module, Args&&... args) {
  module.forward(std::forward<Args>(args)...);
};

namespace initialize_detail {

/// Supplies a result type after a failed static_assert. The call then causes no further errors.
template <class R, class C, class... A>
R result_in_place_of(R (C::*)(A...));
template <class R, class C, class... A>
R result_in_place_of(R (C::*)(A...) const);
at::Tensor result_in_place_of(...);

}  // namespace initialize_detail

/// Trains a model of one class. forward() takes and returns what the model's forward() does.
template <class Module>
class DeepSpeedEngine : public Engine {
 public:
  /// Makes the engine. `model` describes `module`, or the module inside it (describe_module()).
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

  /// Makes a loader over `dataset` for this rank. Checkpoints record the position of initialize()'s loader;
  /// track_loader() selects another. Throws UsageError for an unknown route.
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

  /// Runs the model's forward, as a graph if the config asks for it.
  template <class... Args>
  auto run_forward_as_asked(const ForwardScope& scope, Args&&... args) {
    using Output = decltype(run_forward(std::forward<Args>(args)...));
    const auto forward = [this](auto&... own) { return run_forward(own...); };
    if constexpr (std::is_copy_constructible_v<Output> && requires { forward(args...); }) {
      if (scope.has_graphs()) return run_graphed<Output>(scope, forward, std::decay_t<Args>(args)...);
    }
    return run_forward(std::forward<Args>(args)...);
  }

  /// Runs the model's forward, with its arguments in half precision if fp16.auto_cast asks for it.
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

/// Stands for the loader that initialize() does not return without training data. The pointer is null. Pass
/// training data to get a loader.
struct NoTrainingDataWasGivenToInitialize;

// A range-for over the pointer instead of the loader finds these overloads, and not the many of std.
void begin(const std::shared_ptr<NoTrainingDataWasGivenToInitialize>& pointer_to_a_loader) = delete;
void end(const std::shared_ptr<NoTrainingDataWasGivenToInitialize>&);
template <class Dataset, class Collate>
void begin(const std::shared_ptr<DeepSpeedDataLoader<Dataset, Collate>>& pointer_to_a_loader) = delete;
template <class Dataset, class Collate>
void end(const std::shared_ptr<DeepSpeedDataLoader<Dataset, Collate>>&);

/// Holds what initialize() returns. Use it as `auto [engine, optimizer, training_dataloader, lr_scheduler] =
/// initialize(...)` or by name: `initialize(...).engine`.
template <class Module, class Loader = NoTrainingDataWasGivenToInitialize>
struct Initialized {
  std::shared_ptr<DeepSpeedEngine<Module>> engine;
  std::shared_ptr<zero::ZeroOptimizer> optimizer;    // null: no optimizer, evaluation only
  std::shared_ptr<Loader> training_dataloader;       // null without training data
  std::shared_ptr<optim::LrScheduler> lr_scheduler;  // null: no schedule
};

namespace initialize_detail {

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

template <class Given>
inline constexpr bool kAreOptions = std::is_convertible_v<Given, const InitializeOptions&>;
template <class Given>
inline constexpr bool kIsConfig =
    std::is_same_v<std::remove_cvref_t<Given>, Json> || std::is_convertible_v<Given, std::string>;
template <class Model>
inline constexpr bool kIsKnown = false;

/// Makes an engine for one kind of model; with training data also a loader. make() takes (model, options) or
/// (model, training data, options, collate_fn). This primary template refuses unsupported models. Its
/// specializations are below and in pipe/initialize_pipeline.h.
template <class Model>
struct EngineMaker {
  static_assert(kIsKnown<Model>,
                "the model of initialize() is a std::shared_ptr to a module, its TORCH_MODULE holder or a "
                "torch::nn::AnyModule, which the engine shares: make it by std::make_shared");

  // These replace the engine, so that no further errors follow.
  static Initialized<torch::nn::AnyModule> make(const Model&, const InitializeOptions&) { return {}; }
  template <class Dataset, class Collate>
  static Initialized<torch::nn::AnyModule, DeepSpeedDataLoader<Dataset, Collate>> make(
      const Model&, const Dataset&, const InitializeOptions&, const Collate&) {
    return {};
  }
};

template <class Module>
requires std::is_base_of_v<torch::nn::Module, Module>
struct EngineMaker<std::shared_ptr<Module>> {
  template <class... Rest>
  static auto make(std::shared_ptr<Module> model, Rest&&... rest) {
    EngineModel described = describe_module(model);
    return make_engine(std::move(model), std::move(described), std::forward<Rest>(rest)...);
  }
};

/// Takes a TORCH_MODULE holder, such as torch's own layers.
template <class Holder>
requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, Holder>
struct EngineMaker<Holder> {
  template <class... Rest>
  static auto make(const Holder& model, Rest&&... rest) {
    auto module = model.is_empty() ? nullptr : model.ptr();
    return EngineMaker<decltype(module)>::make(std::move(module), std::forward<Rest>(rest)...);
  }
};

template <>
struct EngineMaker<torch::nn::AnyModule> {
  template <class... Rest>
  static auto make(const torch::nn::AnyModule& model, Rest&&... rest) {
    return make_engine(std::make_shared<torch::nn::AnyModule>(model),
                       describe_module(model.is_empty() ? nullptr : model.ptr()),
                       std::forward<Rest>(rest)...);
  }
};

/// Returns default options if the second argument of initialize() is the options or a config. With training
/// data as the second argument this does not compile, since the options are missing.
template <class DataOrOptions>
InitializeOptions options_left_out() {
  static_assert(kAreOptions<DataOrOptions> || kIsConfig<DataOrOptions>,
                "the options are missing: initialize(model, {.config = config}) or initialize(model, "
                "training_data, {.config = config})");
  return {};
}

}  // namespace initialize_detail

/// Makes an engine for `model`, whose parameters keep their identity: `initialize(model, options)`. With
/// training data, `initialize(model, training_data, options, collate_fn)`, it also makes a loader.
/// `collate_fn` makes its batches (default: stack_examples()).
///
/// `model` is a std::shared_ptr to a module, its TORCH_MODULE holder, or a torch::nn::AnyModule. The class of
/// an AnyModule is known only at run time: forward() then takes and returns what AnyModule's does, a Tensor
/// unless specified otherwise. Options are an InitializeOptions or its members in braces. Throws ConfigError,
/// naming the key, and UsageError.
// One function, so that a compiler that cannot convert the options lists one candidate.
template <class Model, class DataOrOptions = InitializeOptions, class Options = InitializeOptions,
          class Collate = StackExamples>
auto initialize(Model&& model, DataOrOptions&& data_or_options,
                Options&& options = initialize_detail::options_left_out<DataOrOptions>(),
                Collate collate_fn = {}) {
  using Maker = initialize_detail::EngineMaker<std::remove_cvref_t<Model>>;
  constexpr bool has_data = !initialize_detail::kAreOptions<DataOrOptions>;
  constexpr bool is_config =
      initialize_detail::kIsConfig<DataOrOptions> || initialize_detail::kIsConfig<Options>;
  constexpr bool is_ordered =
      has_data ? initialize_detail::kAreOptions<Options> : std::is_same_v<Options, InitializeOptions>;
  static_assert(!is_config, "the config of initialize() is a member of its options: {.config = config}");
  static_assert(is_ordered || is_config,
                "the arguments of initialize() are the model, the training data, the options, collate_fn");
  if constexpr (is_config || !is_ordered) {
    return Initialized<torch::nn::AnyModule>();
  } else if constexpr (has_data) {
    const InitializeOptions& given = options;
    return Maker::make(std::forward<Model>(model), std::forward<DataOrOptions>(data_or_options), given,
                       std::move(collate_fn));
  } else {
    const InitializeOptions& given = data_or_options;
    return Maker::make(std::forward<Model>(model), given);
  }
}

}  // namespace deepspeed
