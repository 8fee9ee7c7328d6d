// Accelerator is Accelerate's way to train with DeepSpeed, for C++ programs (docs/accelerate.md).
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/optim/optimizer.h>

#include "deepspeed/accelerate/accelerator/data_loader.h"
#include "deepspeed/accelerate/accelerator/gradient_state.h"
#include "deepspeed/accelerate/accelerator/operations.h"
#include "deepspeed/accelerate/accelerator/optimizer.h"
#include "deepspeed/accelerate/accelerator/prepare.h"
#include "deepspeed/accelerate/accelerator/project.h"
#include "deepspeed/accelerate/accelerator/scheduler.h"
#include "deepspeed/accelerate/accelerator/state.h"
#include "deepspeed/accelerate/accelerator/tracking.h"
#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/pickle/value.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/init.h"

namespace deepspeed::accelerate {

/// Holds one plugin, or several by name.
using DeepSpeedPlugins = std::variant<std::monostate, PluginPtr, NamedPlugins>;

/// Holds Accelerator's arguments, with Accelerate's names.
struct AcceleratorArguments {
  bool split_batches = false;  ///< older place of dataloader_config.split_batches
  std::optional<std::string> mixed_precision =
      {};                               ///< "no", "fp16" or "bf16"; else ACCELERATE_MIXED_PRECISION
  int gradient_accumulation_steps = 1;  ///< ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins
  bool cpu = false;                     ///< run on the CPU, without DeepSpeed
  DataLoaderConfiguration dataloader_config = {};
  DeepSpeedPlugins deepspeed_plugin = {};   ///< default: made from the variables of `launch`
  DeepSpeedPlugins deepspeed_plugins = {};  ///< other name of deepspeed_plugin
  std::vector<std::string> log_with = {};   ///< trackers to start: "csv"
  std::string project_dir = {};
  std::optional<ProjectConfiguration> project_config = {};
  std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
  bool step_scheduler_with_optimizer = true;  ///< a schedule's step() waits for a step of the optimizer
};

/// Is the micro batch that accumulate() begins.
class Accumulation {
 public:
  explicit Accumulation(bool sync_gradients) : sync_gradients_(sync_gradients) {}
  ~Accumulation() {}  // so that a name for the scope is no unused variable
  bool sync_gradients() const { return sync_gradients_; }

 private:
  bool sync_gradients_;
};

/// Lets one rank run a scope before the others.
class DEEPSPEED_API ProcessFirst {
 public:
  ProcessFirst(comm::ProcessGroup group, bool is_first);
  ~ProcessFirst() noexcept(false);
  ProcessFirst(const ProcessFirst&) = delete;
  ProcessFirst& operator=(const ProcessFirst&) = delete;

 private:
  comm::ProcessGroup group_;
  bool is_first_;
};

namespace prepare_detail {

template <class T>
struct IsLoader : std::false_type {};
template <class Dataset, class Collate>
struct IsLoader<std::shared_ptr<DataLoader<Dataset, Collate>>> : std::true_type {};

template <class T>
inline constexpr bool kIsOptimizer = std::is_convertible_v<T, std::shared_ptr<torch::optim::Optimizer>> ||
                                     std::is_same_v<T, std::shared_ptr<DummyOptim>>;
template <class T>
inline constexpr bool kIsScheduler = std::is_convertible_v<T, std::shared_ptr<torch::optim::LRScheduler>> ||
                                     std::is_same_v<T, std::shared_ptr<DummyScheduler>>;
template <class T>
inline constexpr bool kIsModel = !IsLoader<T>::value && !kIsOptimizer<T> && !kIsScheduler<T>;

/// Reads config.hidden_size, or config.hidden_sizes, of a model that has such a member.
template <class Model>
void describe_config(const Model& model, PrepareRequest& request) {
  const auto read = [&](const auto& config) {
    request.has_config = true;
    if constexpr (requires { static_cast<int64_t>(config.hidden_size); })
      request.hidden_sizes = {static_cast<int64_t>(config.hidden_size)};
    else if constexpr (requires { config.hidden_sizes.begin(); })
      request.hidden_sizes.assign(config.hidden_sizes.begin(), config.hidden_sizes.end());
  };
  if constexpr (
      requires { model->config.hidden_size; } || requires { model->config.hidden_sizes; })
    read(model->config);
  else if constexpr (requires { model->config(); })
    read(model->config());
  else if constexpr (requires { model->config; })
    request.has_config = true;
}

template <class Model>
ModulePtr module_of(const Model& model) {
  if constexpr (std::is_convertible_v<Model, ModulePtr>)
    return model;
  else if constexpr (requires { ModulePtr(model.ptr()); })
    return model.ptr();
  else
    return nullptr;
}

}  // namespace prepare_detail

/// Prepares models, optimizers, loaders and schedules for the ranks, and steps them.
class DEEPSPEED_API Accelerator {
 public:
  /// Joins the job if nobody has. Throws ConfigError, UsageError and NotSupportedError, with Accelerate's words
  /// for arguments that contradict each other.
  explicit Accelerator(const AcceleratorArguments& arguments = {});

  /// Makes an engine of the model, with the optimizer and schedule, and shares the loaders out. Arguments come
  /// in any order, at most one model: a std::shared_ptr to a module, its holder or an AnyModule; a
  /// torch::optim::Optimizer or a DummyOptim; a torch::optim::LRScheduler or a DummyScheduler; loaders of
  /// make_data_loader(). Optimizers and schedules are std::shared_ptrs. Returns what takes their places, in
  /// the same order: a tuple, or for one argument its value. A model alone is for evaluation, at stage 3.
  template <class... Args>
  auto prepare(Args... args) {
    static_assert((int{prepare_detail::kIsModel<Args>} + ... + 0) <= 1,
                  "You can't use same `Accelerator()` instance with multiple models when using DeepSpeed: "
                  "prepare() takes one model");
    PrepareRequest request;
    (describe(args, request), ...);
    (share_out(args), ...);
    const InitializeOptions options = plan(request);
    std::shared_ptr<Engine> engine;
    auto models = std::tuple_cat(make_model(args, options, engine)...);
    if (engine) adopt(engine, request);
    auto results = std::tuple_cat(result_of(args, models)...);
    if constexpr (sizeof...(Args) == 1)
      return std::get<0>(results);
    else
      return results;
  }

  /// Begins a micro batch, and decides whether it ends a step. The last batch of a loader does.
  Accumulation accumulate();
  template <class... Models>
  Accumulation accumulate(const Models&...) {
    return accumulate();
  }
  /// Runs backward, and at the end of a step updates the parameters. Throws UsageError before prepare().
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});
  bool sync_gradients() const { return gradient_state_->sync_gradients(); }
  /// Returns the norm of the last step's gradients before clipping, if it was computed. The clipping itself is
  /// the config's gradient_clipping; a different `max_norm` is warned about.
  std::optional<double> clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm);
  int gradient_accumulation_steps() const { return gradient_state_->num_steps(); }
  bool optimizer_step_was_skipped() const;

  // --- the ranks ---

  const AcceleratorState& state() const { return state_; }
  DistributedType distributed_type() const { return state_.distributed_type(); }
  int num_processes() const { return state_.num_processes(); }
  int process_index() const { return state_.process_index(); }
  int local_process_index() const { return state_.local_process_index(); }
  at::Device device() const { return state_.device(); }
  bool is_main_process() const { return state_.is_main_process(); }
  bool is_local_main_process() const { return state_.is_local_main_process(); }
  bool is_last_process() const { return state_.is_last_process(); }
  bool use_distributed() const { return distributed_type() != DistributedType::kNo && num_processes() > 1; }
  std::string mixed_precision() const { return state_.mixed_precision(); }
  const PluginPtr& deepspeed_plugin() const { return state_.deepspeed_plugin(); }
  void wait_for_everyone() const;
  /// Returns a scope that rank 0, or the first rank of each machine, runs before the others.
  std::unique_ptr<ProcessFirst> main_process_first() const;
  std::unique_ptr<ProcessFirst> local_main_process_first() const;
  /// Prints on the first rank of each machine.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (!is_local_main_process()) return;
    (std::cout << ... << parts) << std::endl;
  }

  // --- values of all ranks ---

  /// Returns `value`, a tensor or a type that holds tensors, with the tensors of all ranks after each other.
  template <class T>
  T gather(T value) const {
    return map_tensors(std::move(value),
                       [&](const at::Tensor& tensor) { return gather_tensor(group(), tensor); });
  }
  /// Gathers like gather(), and drops the samples that an uneven last batch has repeated.
  template <class T>
  T gather_for_metrics(T value) const {
    value = gather(std::move(value));
    const int64_t kept = gradient_state_->end_of_dataloader() ? gradient_state_->remainder() : 0;
    if (kept <= 0) return value;
    return map_tensors(std::move(value), [&](const at::Tensor& tensor) {
      return tensor.narrow(0, 0, std::min(kept, tensor.size(0)));
    });
  }
  template <class T>
  T reduce(T value, const std::string& reduction = "sum", double scale = 1.0) const {
    return map_tensors(std::move(value), [&](const at::Tensor& tensor) {
      return reduce_tensor(group(), tensor, reduction, scale);
    });
  }
  template <class T>
  T pad_across_processes(T value, int64_t dim = 0, int64_t pad_index = 0, bool pad_first = false) const {
    return map_tensors(std::move(value), [&](const at::Tensor& tensor) {
      return pad_tensor(group(), tensor, dim, pad_index, pad_first);
    });
  }

  // --- saving ---

  /// Writes the engines (tags `pytorch_model`, `pytorch_model_1`, ...), the program's schedules, random states
  /// and registered objects into the folder. Without a folder the project names it. Python's load_state()
  /// reads it. Gradients that wait for a step are left out, with a warning. Returns the folder. Collective.
  std::string save_state(const std::string& output_dir = {}, const SaveOptions& options = {});
  /// Reads what save_state(), here or in Python, wrote. Loaders go on in the epoch of the save, from its first
  /// batch; skip_first_batches() leaves those out that the run has had. Random states that cannot be read are named once, and
  /// the load goes on. Throws UsageError for a folder that does not exist. Collective.
  void load_state(const std::string& input_dir = {}, const LoadOptions& options = {});
  /// Saves the object's state_dict() with save_state(), and gives it to load_state_dict() with load_state().
  /// Both use checkpoint::Dict. The object must outlive the Accelerator.
  template <class Object>
  void register_for_checkpointing(Object& object) {
    add_custom([&object] { return checkpoint::Dict(object.state_dict()); },
               [&object](const checkpoint::Dict& state) { object.load_state_dict(state); });
  }
  /// Returns the model's whole weights on the CPU, on every rank; at stage 3 on rank 0 alone, and the others
  /// get none. Throws UsageError, with Accelerate's words, if the config forbids it. Collective.
  NamedTensors get_state_dict(const TrainingEngine& engine) const;
  /// Writes the weights as model.safetensors, or as pytorch_model.bin, in files of at most `max_shard_size`
  /// bytes. Collective.
  void save_model(const TrainingEngine& engine, const std::string& save_directory,
                  int64_t max_shard_size = 10'000'000'000, bool safe_serialization = true) const;
  /// Writes a value of torch.save's format on rank 0, or with save_on_each_node on each machine's first rank.
  void save(const checkpoint::Value& value, const std::string& path) const;
  /// Returns the engine's model.
  template <class Module>
  std::shared_ptr<Module> unwrap_model(const std::shared_ptr<DeepSpeedEngine<Module>>& engine) const {
    return engine->module_ptr();
  }
  ProjectConfiguration& project_configuration() { return project_; }
  int save_iteration() const { return project_.iteration; }

  // --- what the program logs ---

  /// Starts the trackers of `log_with`, on rank 0. config: values that they keep.
  void init_trackers(const std::string& project_name, const Json& config = Json::object());
  /// Adds a tracker of the program's own.
  void add_tracker(std::shared_ptr<GeneralTracker> tracker) { trackers_.push_back(std::move(tracker)); }
  void log(const std::map<std::string, double>& values, std::optional<int64_t> step = {});
  /// Ends the trackers, after all ranks have arrived.
  void end_training();

  /// Returns a scope in which models are made partitioned, if the plugin asks for zero::Init; else null.
  std::unique_ptr<zero::Init> zero3_init() const;
  /// Forgets engines, loaders and schedules, and sets the given pointers to null.
  template <class... Objects>
  void free_memory(Objects&... objects) {
    forget_prepared();
    ((objects = nullptr), ...);
  }
  template <class... Objects>
  void clear(Objects&... objects) {
    free_memory(objects...);
  }

 private:
  /// Saves and restores one registered object.
  struct Custom {
    std::function<checkpoint::Dict()> state_dict;
    std::function<void(const checkpoint::Dict&)> load_state_dict;
  };

  /// Reaches the epoch of a prepared loader.
  struct LoaderEpoch {
    std::function<int64_t()> get;
    std::function<void(int64_t)> set;
  };

  template <class Arg>
  void describe(const Arg& arg, PrepareRequest& request) const {
    using namespace prepare_detail;
    if constexpr (IsLoader<Arg>::value) {
      request.batch_sizes.push_back(arg->batch_size());
    } else if constexpr (std::is_same_v<Arg, std::shared_ptr<DummyOptim>>) {
      request.dummy_optim = arg;
    } else if constexpr (kIsOptimizer<Arg>) {
      request.optimizer = arg;
    } else if constexpr (std::is_same_v<Arg, std::shared_ptr<DummyScheduler>>) {
      request.dummy_scheduler = arg;
    } else if constexpr (kIsScheduler<Arg>) {
      request.scheduler = arg;
    } else {
      request.has_model = true;
      request.module = module_of(arg);
      describe_config(arg, request);
    }
  }
  template <class Arg>
  void share_out(const Arg& arg) {
    if constexpr (prepare_detail::IsLoader<Arg>::value) {
      arg->share_out(loader_share());
      loaders_.push_back({[arg] { return arg->epoch(); }, [arg](int64_t epoch) { arg->set_epoch(epoch); }});
    }
  }
  template <class Arg>
  auto make_model(const Arg& arg, const InitializeOptions& options, std::shared_ptr<Engine>& engine) {
    if constexpr (prepare_detail::kIsModel<Arg>) {
      auto made = initialize(arg, options).engine;
      engine = made;
      return std::make_tuple(made);
    } else {
      return std::make_tuple();
    }
  }
  template <class Arg, class Models>
  auto result_of(const Arg& arg, const Models& models) const {
    if constexpr (prepare_detail::kIsModel<Arg>)
      return std::make_tuple(std::get<0>(models));
    else if constexpr (prepare_detail::kIsOptimizer<Arg>)
      return std::make_tuple(last_optimizer_);
    else if constexpr (prepare_detail::kIsScheduler<Arg>)
      return std::make_tuple(last_scheduler_);
    else
      return std::make_tuple(arg);
  }

  const comm::ProcessGroup& group() const { return state_.world().group(); }
  LoaderShare loader_share() const;
  InitializeOptions plan(const PrepareRequest& request);
  /// Keeps the engine and wraps the program's optimizer and schedule.
  void adopt(const std::shared_ptr<Engine>& engine, const PrepareRequest& request);
  void add_custom(std::function<checkpoint::Dict()> save, std::function<void(const checkpoint::Dict&)> load);
  void forget_prepared();
  bool writes() const;

  AcceleratorState state_;
  PluginPtr plain_plugin_;  ///< the config without DeepSpeed: stage 0
  DataLoaderConfiguration dataloader_config_;
  std::shared_ptr<GradientState> gradient_state_;
  bool step_scheduler_with_optimizer_ = true;
  ProjectConfiguration project_;
  std::vector<std::string> log_with_;
  std::vector<std::shared_ptr<GeneralTracker>> trackers_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::vector<std::shared_ptr<AcceleratedScheduler>> schedulers_;
  std::vector<LoaderEpoch> loaders_;
  std::vector<Custom> customs_;
  std::shared_ptr<AcceleratedOptimizer> last_optimizer_;
  std::shared_ptr<AcceleratedScheduler> last_scheduler_;
  std::vector<std::shared_ptr<AcceleratedOptimizer>> optimizers_;
};

}  // namespace deepspeed::accelerate
