// Steps engines as Accelerate does. backward() sets the boundary, and at the end of a step also steps; calls of
// optimizer and schedule of the program then find the step done.
#include "deepspeed/accelerate/accelerator/accelerator.h"

#include <algorithm>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {
namespace {

/// Returns the plugins of the two arguments, of which one may be given.
NamedPlugins plugins_of(const AcceleratorArguments& arguments) {
  const bool has_one = arguments.deepspeed_plugin.index() != 0;
  const bool has_other = arguments.deepspeed_plugins.index() != 0;
  if (has_one && has_other)
    raise<UsageError>("You cannot pass in both `deepspeed_plugins` and `deepspeed_plugin`.");
  const DeepSpeedPlugins& given = has_one ? arguments.deepspeed_plugin : arguments.deepspeed_plugins;
  NamedPlugins plugins;
  if (const auto* single = std::get_if<PluginPtr>(&given)) plugins = {{"", *single}};
  if (const auto* named = std::get_if<NamedPlugins>(&given)) plugins = *named;
  for (const auto& [name, plugin] : plugins)
    if (!plugin) raise<UsageError>("`deepspeed_plugin` must be a DeepSpeedPlugin object.");
  return plugins;
}

GradientAccumulationPlugin accumulation_of(const AcceleratorArguments& arguments) {
  if (arguments.gradient_accumulation_plugin) {
    if (arguments.gradient_accumulation_steps != 1) {
      raise<UsageError>(
          "You can only pass one of `gradient_accumulation_steps` and `gradient_accumulation_plugin`. Please "
          "only pass ",
          "in the created `GradientAccumulationPlugin` object.");
    }
    return *arguments.gradient_accumulation_plugin;
  }
  const auto in_environment = env::get_int("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  const int64_t steps = in_environment.value_or(arguments.gradient_accumulation_steps);
  if (steps < 1) raise<UsageError>("gradient_accumulation_steps is ", steps, ", expected 1 or more");
  return {.num_steps = static_cast<int>(steps)};
}

ProjectConfiguration project_of(const AcceleratorArguments& arguments) {
  ProjectConfiguration project = arguments.project_config.value_or(ProjectConfiguration());
  if (project.project_dir.empty()) project.project_dir = arguments.project_dir;
  if (project.logging_dir.empty()) project.logging_dir = project.project_dir;
  return project;
}

DataLoaderConfiguration loaders_of(const AcceleratorArguments& arguments) {
  DataLoaderConfiguration configuration = arguments.dataloader_config;
  configuration.split_batches = configuration.split_batches || arguments.split_batches;
  return configuration;
}

/// Returns the config of training without DeepSpeed: stage 0, and torch's autocast for a precision.
PluginPtr plain_plugin(const std::string& mixed_precision) {
  Json config = {{"train_batch_size", "auto"},
                 {"train_micro_batch_size_per_gpu", "auto"},
                 {"gradient_accumulation_steps", "auto"},
                 {"zero_optimization", {{"stage", 0}}}};
  if (mixed_precision != "no")
    config["torch_autocast"] = {{"enabled", true},
                                {"dtype", mixed_precision == "bf16" ? "bfloat16" : "float16"}};
  return std::make_shared<DeepSpeedPlugin>(DeepSpeedPlugin::of_config(std::move(config)));
}

}  // namespace

ProcessFirst::ProcessFirst(comm::ProcessGroup group, bool is_first)
    : group_(std::move(group)), is_first_(is_first) {
  if (!is_first_) comm::barrier(group_);
}

ProcessFirst::~ProcessFirst() noexcept(false) {
  if (is_first_) comm::barrier(group_);
}

Accelerator::Accelerator(const AcceleratorArguments& arguments)
    : state_(AcceleratorState::make(arguments.mixed_precision, arguments.cpu, plugins_of(arguments))),
      dataloader_config_(loaders_of(arguments)),
      gradient_state_(std::make_shared<GradientState>(accumulation_of(arguments))),
      step_scheduler_with_optimizer_(arguments.step_scheduler_with_optimizer),
      project_(project_of(arguments)),
      log_with_(arguments.log_with) {
  if (!deepspeed_plugin()) plain_plugin_ = plain_plugin(state_.mixed_precision());
}

LoaderShare Accelerator::loader_share() const {
  return {.rank = process_index(),
          .world_size = num_processes(),
          .split_batches = dataloader_config_.split_batches,
          .even_batches = dataloader_config_.even_batches,
          .data_seed = dataloader_config_.data_seed,
          .device = device(),
          .gradient_state = gradient_state_};
}

InitializeOptions Accelerator::plan(const PrepareRequest& request) {
  const PluginPtr& plugin = deepspeed_plugin() ? deepspeed_plugin() : plain_plugin_;
  return plan_prepare(*plugin, request, *gradient_state_, num_processes(), dataloader_config_.split_batches);
}

void Accelerator::adopt(const std::shared_ptr<Engine>& engine, const PrepareRequest& request) {
  if (!engines_.empty()) {
    log::warning(
        "[accelerate] A wrapped DeepSpeed engine reference is currently tied for this `Accelerator()` "
        "instance. If you want ",
        "to call `accelerator.backward()` referencing a new model/engine, please create a separate "
        "`Accelerator()` instance ",
        "and call `accelerator.prepare()` on it.");
  }
  engines_.push_back(engine);
  last_optimizer_ = nullptr;
  last_scheduler_ = nullptr;
  if (request.optimizer || request.dummy_optim) {
    last_optimizer_ = std::make_shared<AcceleratedOptimizer>(engine, request.optimizer);
    optimizers_.push_back(last_optimizer_);
  }
  if (request.scheduler) {
    if (!request.optimizer) raise<UsageError>("prepare() got a schedule without its optimizer: pass both");
    const int times = dataloader_config_.split_batches ? 1 : num_processes();
    last_scheduler_ = std::make_shared<AcceleratedScheduler>(
        request.scheduler, last_optimizer_, gradient_state_, step_scheduler_with_optimizer_, times);
  } else if (request.dummy_scheduler) {
    last_scheduler_ = std::make_shared<AcceleratedScheduler>(engine->lr_scheduler());
  }
  if (last_scheduler_) schedulers_.push_back(last_scheduler_);
}

Accumulation Accelerator::accumulate() {
  gradient_state_->next_micro_batch();
  return Accumulation(gradient_state_->sync_gradients());
}

void Accelerator::backward(const at::Tensor& loss, const BackwardOptions& options) {
  if (engines_.empty()) raise<UsageError>("backward() is called before prepare(), expected a prepared model");
  Engine& engine = *engines_.front();
  engine.set_gradient_accumulation_boundary(sync_gradients());
  engine.backward(loss, options);
  if (!sync_gradients()) return;
  if (!optimizers_.empty()) optimizers_.front()->pass_rates_on();
  engine.step();
}

std::optional<double> Accelerator::clip_grad_norm_(const std::vector<at::Tensor>& /*parameters*/,
                                                   double max_norm) {
  if (engines_.empty())
    raise<UsageError>("clip_grad_norm_() is called before prepare(), expected a prepared model");
  const double of_config = engines_.front()->config().gradient_clipping;
  static bool is_told = false;
  if (of_config != max_norm && !is_told) {
    is_told = true;
    log::warning("[accelerate] clip_grad_norm_() is called with max_norm = ", max_norm,
                 ", and gradients are clipped to the config's ", "gradient_clipping, ", of_config,
                 ": set that one (DeepSpeedPlugin, --gradient_clipping)");
  }
  return engines_.front()->get_global_grad_norm();
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::any_of(optimizers_.begin(), optimizers_.end(),
                     [](const auto& optimizer) { return optimizer->step_was_skipped(); });
}

void Accelerator::wait_for_everyone() const { comm::barrier(group()); }

std::unique_ptr<ProcessFirst> Accelerator::main_process_first() const {
  return std::make_unique<ProcessFirst>(group(), is_main_process());
}

std::unique_ptr<ProcessFirst> Accelerator::local_main_process_first() const {
  return std::make_unique<ProcessFirst>(group(), is_local_main_process());
}

bool Accelerator::writes() const {
  return project_.save_on_each_node ? is_local_main_process() : is_main_process();
}

void Accelerator::add_custom(std::function<checkpoint::Dict()> save,
                             std::function<void(const checkpoint::Dict&)> load) {
  customs_.push_back({std::move(save), std::move(load)});
}

void Accelerator::init_trackers(const std::string& project_name, const Json& config) {
  if (is_main_process()) {
    for (const std::string& name : log_with_)
      trackers_.push_back(make_tracker(name, project_name, project_.logging_dir));
    for (const auto& tracker : trackers_) tracker->store_init_configuration(config);
  }
}

void Accelerator::log(const std::map<std::string, double>& values, std::optional<int64_t> step) {
  if (!is_main_process()) return;
  for (const auto& tracker : trackers_) tracker->log(values, step);
}

void Accelerator::end_training() {
  if (is_main_process())
    for (const auto& tracker : trackers_) tracker->finish();
  trackers_.clear();
  wait_for_everyone();
}

std::unique_ptr<zero::Init> Accelerator::zero3_init() const {
  if (!deepspeed_plugin() || !deepspeed_plugin()->is_zero3_init_enabled()) return nullptr;
  return std::make_unique<zero::Init>(
      zero::InitArguments{.config_dict_or_path = deepspeed_plugin()->config_for_init()});
}

void Accelerator::forget_prepared() {
  engines_.clear();
  optimizers_.clear();
  schedulers_.clear();
  loaders_.clear();
  last_optimizer_ = nullptr;
  last_scheduler_ = nullptr;
  gradient_state_->set_step(0);
}

}  // namespace deepspeed::accelerate
