// Decides in the order of Accelerate's prepare(): micro batch, accumulation steps, the pair of optimizer and
// schedule, the model's sizes, then all values that are still "auto".
#include "deepspeed/accelerate/accelerator/prepare.h"

#include <algorithm>

#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {
namespace {

constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

/// Returns the samples of a rank's micro batch, or null if neither config nor loaders say it.
Json micro_batch(const DeepSpeedPlugin& plugin, const PrepareRequest& request, int num_processes,
                 bool split_batches) {
  if (!plugin.is_auto(kMicroBatch)) return plugin.get_value(kMicroBatch);
  std::vector<int64_t> sizes = request.batch_sizes;
  if (sizes.empty()) {
    raise<ConfigError>(
        "When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or "
        "evaluation dataloaders with ",
        "`batch_size` attribute returning an integer value or alternatively set an integer value in ",
        "`train_micro_batch_size_per_gpu` in the deepspeed config file or assign integer value to ",
        "`AcceleratorState().deepspeed_plugin.deepspeed_config['train_micro_batch_size_per_gpu']`.");
  }
  if (split_batches)
    for (int64_t& size : sizes) size /= num_processes;
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  return plugin.is_train_batch_min() ? *least : *most;
}

/// Makes the Accelerator accumulate as many micro batches as the config.
void agree_on_steps(DeepSpeedPlugin& plugin, GradientState& state) {
  plugin.fill_match(kSteps, {{kSteps, state.num_steps()}});
  const auto of_config = config::as_int(plugin.get_value(kSteps));
  if (!of_config || *of_config == state.num_steps()) return;
  log::warning("[config] Gradient accumulation steps mismatch: GradientAccumulationPlugin has ",
               state.num_steps(), ", DeepSpeed config has ", *of_config, ". Using DeepSpeed's value.");
  state.set_num_steps(static_cast<int>(*of_config));
}

void check_pair(const DeepSpeedPlugin& plugin, const PrepareRequest& request) {
  const bool of_config = plugin.deepspeed_config().contains("optimizer");
  if (request.optimizer && of_config) {
    raise<ConfigError>(
        "You cannot specify an optimizer in the config file and in the code at the same time. Please remove "
        "the ",
        "optimizer from the config file or create `accelerate.utils.DummyOptim` in the code.");
  }
  if (request.dummy_optim && !of_config)
    raise<ConfigError>(
        "You cannot create a `DummyOptim` without specifying an optimizer in the config file.");
  const bool schedule_of_config = plugin.deepspeed_config().contains("scheduler");
  if (request.scheduler && schedule_of_config) {
    raise<ConfigError>(
        "You cannot specify a scheduler in the config file and in the code at the same time. Please remove "
        "the ",
        "scheduler from the config file or create `accelerate.utils.DummyScheduler` in the code.");
  }
  if (request.dummy_scheduler && !schedule_of_config && !request.dummy_scheduler->lr_scheduler_callable) {
    raise<ConfigError>(
        "Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` parameter when "
        "using ",
        "`accelerate.utils.DummyScheduler`.");
  }
  if (request.dummy_optim && request.scheduler)
    raise<ConfigError>(
        "You can only specify `accelerate.utils.DummyScheduler` in the code when using "
        "`accelerate.utils.DummyOptim`.");
}

/// Adds what follows from the model's hidden size.
void add_hidden_sizes(const DeepSpeedPlugin& plugin, const PrepareRequest& request, AutoValues& values) {
  constexpr const char* kBucket = "zero_optimization.reduce_bucket_size";
  constexpr const char* kPrefetch = "zero_optimization.stage3_prefetch_bucket_size";
  constexpr const char* kPersistence = "zero_optimization.stage3_param_persistence_threshold";
  std::vector<std::string> open;
  for (const char* path : {kBucket, kPrefetch, kPersistence})
    if (plugin.is_auto(path)) open.emplace_back(path);
  if (open.empty()) return;
  if (request.hidden_sizes.empty()) {
    raise<ConfigError>(request.has_config
                           ? "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`, "
                           : "Can't find `model.config` entry, ",
                       "therefore it's not possible to automatically fill out the following `auto` entries "
                       "in the DeepSpeed ",
                       "config file: ", python_repr(Json(open)),
                       ". You can fix that by replacing `auto` values for these keys ",
                       "with an integer value of your choice.");
  }
  const int64_t hidden = *std::max_element(request.hidden_sizes.begin(), request.hidden_sizes.end());
  values[kBucket] = hidden * hidden;
  values[kPrefetch] = static_cast<int64_t>(0.9 * static_cast<double>(hidden) * static_cast<double>(hidden));
  values[kPersistence] = 10 * hidden;
}

void add_optimizer_and_schedule(const PrepareRequest& request, int num_processes, bool split_batches,
                                AutoValues& values) {
  if (request.dummy_optim) {
    values["optimizer.params.lr"] = request.dummy_optim->lr;
    values["optimizer.params.weight_decay"] = request.dummy_optim->weight_decay;
  }
  const DummyScheduler* schedule = request.dummy_scheduler.get();
  if (!schedule || schedule->lr_scheduler_callable) return;
  values["scheduler.params.warmup_min_lr"] = 0;
  values["scheduler.params.warmup_max_lr"] = schedule->lr;
  values["scheduler.params.warmup_num_steps"] = schedule->warmup_num_steps;
  if (!schedule->total_num_steps) return;
  const int64_t total = *schedule->total_num_steps;
  values["scheduler.params.total_num_steps"] =
      split_batches ? total : (total + num_processes - 1) / num_processes;
}

void mark_experts(const DeepSpeedPlugin& plugin, const ModulePtr& module) {
  for (const std::string& name : plugin.moe_layer_classes()) {
    try {
      set_z3_leaf_modules(module, {name});
    } catch (const UsageError&) {
      raise<ConfigError>("Could not find a transformer layer class called '", name,
                         "' to wrap in the model.");
    }
  }
}

void require_nvme_paths(const DeepSpeedPlugin& plugin) {
  for (const std::string part : {"offload_optimizer", "offload_param"}) {
    const std::string section = "zero_optimization." + part;
    if (plugin.get_value(section + ".device") != "nvme") continue;
    const Json path = plugin.get_value(section + ".nvme_path");
    if (path.is_string() && path != "none") continue;
    raise<ConfigError>(section, ".nvme_path: got ", path.dump(), ", expected a folder on the disk: give ",
                       part, "_nvme_path");
  }
}

}  // namespace

InitializeOptions plan_prepare(DeepSpeedPlugin& plugin, const PrepareRequest& request, GradientState& state,
                               int num_processes, bool split_batches) {
  const Json batch = micro_batch(plugin, request, num_processes, split_batches);
  agree_on_steps(plugin, state);
  AutoValues values = {{"gradient_clipping", 1.0},
                       {"zero_optimization.stage3_gather_16bit_weights_on_model_save", false}};
  if (!batch.is_null()) {
    values[kMicroBatch] = batch;
    values["train_batch_size"] = config::as_int(batch).value_or(0) *
                                 config::as_int(plugin.get_value(kSteps)).value_or(1) * num_processes;
  }
  check_pair(plugin, request);
  if (request.optimizer) plugin.hf_ds_config().config["zero_allow_untested_optimizer"] = true;
  InitializeOptions options;
  if (!request.has_model) return options;
  if (request.module && !plugin.moe_layer_classes().empty()) mark_experts(plugin, request.module);
  add_hidden_sizes(plugin, request, values);
  add_optimizer_and_schedule(request, num_processes, split_batches, values);
  plugin.deepspeed_config_process(values, false);
  require_nvme_paths(plugin);

  options.config = plugin.deepspeed_config();
  if (request.dummy_optim) {
    options.model_parameters = request.dummy_optim->groups;
    if (request.dummy_scheduler) options.lr_scheduler = request.dummy_scheduler->lr_scheduler_callable;
  } else if (request.optimizer) {
    const bool offloads = plugin.get_value("zero_optimization.offload_optimizer.device", "none") != "none";
    const bool forces = config::as_bool(plugin.get_value("zero_force_ds_cpu_optimizer", true)).value_or(true);
    const auto of_cpu = offloads && forces ? cpu_optimizer_for(*request.optimizer) : nullptr;
    options.optimizer = of_cpu ? of_cpu : request.optimizer;
  }
  return options;
}

}  // namespace deepspeed::accelerate
