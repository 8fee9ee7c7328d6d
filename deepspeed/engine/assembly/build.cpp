// build_engine() takes four steps. It reads the config and finds the ranks that work together. It prepares
// the model and its optimizer for training. It compares what all ranks must agree on. It makes the parts that
// the ZeRO stage partitions.
#include "deepspeed/engine/assembly/build.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include <ATen/Parallel.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/comm/mpu.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/host_pool/large_tensors.h"
#include "deepspeed/device/memory/library_pages.h"
#include "deepspeed/device/threads/threads.h"
#include "deepspeed/engine/assembly/base_optimizer.h"
#include "deepspeed/engine/assembly/initialize_arguments.h"
#include "deepspeed/engine/assembly/memory_check.h"
#include "deepspeed/engine/assembly/model_precision.h"
#include "deepspeed/engine/assembly/model_store.h"
#include "deepspeed/engine/assembly/offload_choices.h"
#include "deepspeed/engine/assembly/param_groups.h"
#include "deepspeed/engine/assembly/seed.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/engine/guards/param_claims.h"
#include "deepspeed/engine/guards/rank_agreement.h"
#include "deepspeed/engine/guards/sendable.h"
#include "deepspeed/engine/guards/slice_agreement.h"
#include "deepspeed/engine/model/autocast_marks.h"
#include "deepspeed/engine/model/leaf_units.h"
#include "deepspeed/engine/ranks/parallel_groups.h"
#include "deepspeed/optim/schedules/lr_scheduler_factory.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

using TorchOptimizerPtr = std::shared_ptr<torch::optim::Optimizer>;

// The defaults of torch.amp.GradScaler, for fp16 autocast. Parameters and gradients stay in fp32 there.
std::unique_ptr<precision::LossScaler> autocast_scaler() {
  precision::DynamicLossScalerOptions options;
  options.scale_window = 2000;
  options.hysteresis = 1;
  return std::make_unique<precision::DynamicLossScaler>(options);
}

std::unique_ptr<precision::LossScaler> make_loss_scaler(const config::DeepSpeedConfig& config,
                                                        std::optional<at::ScalarType> autocast) {
  const auto& fp16 = config.fp16;
  if (!fp16.enabled && autocast == at::kHalf) return autocast_scaler();
  if (!fp16.enabled) return std::make_unique<precision::StaticLossScaler>(1.0);
  if (fp16.loss_scale > 0.0) return std::make_unique<precision::StaticLossScaler>(fp16.loss_scale);
  precision::DynamicLossScalerOptions options;
  options.initial_scale = std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power));
  options.scale_window = fp16.loss_scale_window;
  options.min_scale = static_cast<double>(fp16.min_loss_scale);
  options.hysteresis = fp16.hysteresis;
  options.consecutive_hysteresis = fp16.consecutive_hysteresis;
  return std::make_unique<precision::DynamicLossScaler>(options);
}

// Like DeepSpeed, initialize() moves the model to its rank's device.
void move_to_device(const EngineModel& model, const comm::World& world) {
  if (world.group().device_type() == at::kCPU) return;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(device::current_cuda_device()));
  for (const auto* tensors : {&model.parameters, &model.buffers}) {
    for (const NamedTensor& entry : *tensors) {
      if (entry.tensor.device() == device || entry.tensor.is_meta()) continue;
      entry.tensor.set_data(entry.tensor.detach().to(device));
    }
  }
}

void cast_buffers(const EngineModel& model, const std::optional<at::ScalarType>& dtype) {
  if (!dtype) return;
  for (const NamedTensor& buffer : model.buffers) {
    if (buffer.tensor.is_floating_point()) buffer.tensor.set_data(buffer.tensor.detach().to(*dtype));
  }
}

// Makes the buffers equal on all ranks.
void prepare_buffers(const EngineModel& model, const comm::ProcessGroup& group) {
  const bool alone = group.size() == 1;
  for (const NamedTensor& buffer : model.buffers) {
    if (alone || buffer.tensor.numel() == 0) continue;
    const at::Tensor values = buffer.tensor.detach().contiguous();
    group.broadcast(sendable(values), 0);
    buffer.tensor.detach().copy_(values);
  }
}

// Returns the weights of embeddings: with sparse_gradients their gradients are sent as rows.
zero::ParamSet row_parameters(const config::DeepSpeedConfig& config, const EngineModel& model) {
  zero::ParamSet found;
  if (!config.sparse_gradients) return found;
  if (config.zero_optimization.stage >= 2) {
    log::warning("[config] without effect: sparse_gradients (stage ", config.zero_optimization.stage,
                 " reduces each gradient to its owners, whole)");
    return found;
  }
  for (const ModuleParameters& module : model.modules) {
    if (module.kind != ModuleKind::kEmbedding) continue;
    for (const at::Tensor& parameter : module.parameters) found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

std::shared_ptr<optim::LrScheduler> make_scheduler(const config::DeepSpeedConfig& config,
                                                   const InitializeOptions& options,
                                                   const TorchOptimizerPtr& client,
                                                   zero::ZeroOptimizer* optimizer) {
  if (optimizer == nullptr) {
    if (config.scheduler || options.lr_scheduler) {
      log::warning("[initialize] the schedule is not used: there is no optimizer");
    }
    return nullptr;
  }
  if (options.lr_scheduler) return options.lr_scheduler.make({optimizer->param_groups(), client});
  if (!config.scheduler) return nullptr;
  return optim::make_lr_scheduler(config.scheduler->type, config.scheduler->params,
                                  optimizer->param_groups());
}

// Gradients of a leaf module are reduced when the backward has left the module.
void follow_units(const std::shared_ptr<zero::ZeroOptimizer>& optimizer,
                  const std::shared_ptr<zero::GatherPool>& pool) {
  if (!pool) return;
  pool->on_unit_done([weak = std::weak_ptr(optimizer)](size_t unit) {
    if (const auto alive = weak.lock()) alive->on_unit_done(unit);
  });
}

void start_comms_logger(const config::CommsLoggerConfig& logger, const comm::World& world) {
  if (!logger.enabled) return;
  comm::CommsLogger::instance().start({.verbose = logger.verbose,
                                       .prof_all = logger.prof_all,
                                       .debug = logger.debug,
                                       .prof_ops = logger.prof_ops,
                                       .ranks_per_node = world.ranks_per_node()});
}

// As in DeepSpeed, only the program itself can apply the section to its checkpointed regions.
void tell_of_checkpointing_keys(const Json& config) {
  const auto section = config.find("activation_checkpointing");
  if (section == config.end() || !section->is_object() || checkpointing::is_configured()) return;
  std::string keys;
  for (const auto& [key, value] : section->items()) {
    if (value.is_null() || value == false) continue;
    keys += (keys.empty() ? "" : ", ") + key;
  }
  if (keys.empty()) return;
  log::info("[config] activation_checkpointing: ", keys,
            " will act on regions of checkpointing::checkpoint() once checkpointing::configure() gets this ",
            "config; initialize() does not call it");
}

/// Holds what the steps of build_engine() pass on besides the engine's parts.
struct Ingredients {
  at::ScalarType dtype;  // dtype of the model's parameters
  ClientOptimizer client;
  OptimizerGroups groups;
  std::unique_ptr<optim::Optimizer> base = nullptr;  // null: the engine only evaluates
  zero::ParamDtypes autocast_marks = {};
};

// First step: reads the config and finds the ranks that work together.
EngineParts begin_parts(EngineModel model, const InitializeOptions& options, const comm::World& world,
                        const RankLayout& layout) {
  const config::ConfigSource source = find_config(options);
  log::set_rank(world.rank());
  config::DeepSpeedConfig config = config::load_config(source, int64_t(layout.data.size()));
  if (config.log_level) log::set_level(log::level_from_name(*config.log_level));
  start_comms_logger(config.comms_logger, world);
  tell_of_checkpointing_keys(config.raw);
  if (config.dump_state) log::info("config: ", config.raw.dump(2));
  device::set_threads_per_rank(world.local_size());
  ParallelGroups groups = make_engine_groups(world, options.engine_name, config, model, layout);
  return {.config = std::move(config),
          .world = world,
          .groups = std::move(groups),
          .model = std::move(model),
          .optimizer = nullptr,
          .lr_scheduler = nullptr};
}

// Second step: brings the model to its dtype and device, and makes the optimizer that trains it.
Ingredients prepare_model(EngineParts& parts, const InitializeOptions& options) {
  config::DeepSpeedConfig& config = parts.config;
  EngineModel& model = parts.model;
  const at::DeviceType device = parts.world.group().device_type();
  follow_model_precision(config, model, device);
  const at::ScalarType dtype = model_dtype(config);
  move_to_device(model, parts.world);
  if (device == at::kCPU) device::pool_large_tensors();
  ClientOptimizer client{find_optimizer(model, options), options.slice_optimizer};
  OptimizerGroups groups = make_param_groups(model, config, options, client.torch.get());
  const int64_t stage = config.zero_optimization.stage;
  parts.claims = claim_parameters(model, groups.tensors, stage, dtype);
  cast_buffers(model, dtype_of(config.data_types.buffer_dtype));
  // Without an optimizer stage 3 still partitions parameters for evaluation. Stages 1 and 2 partition only
  // gradients and states, so they have nothing to do.
  if (groups.tensors.empty() && (stage == 1 || stage == 2)) {
    raise<ConfigError>("zero_optimization.stage ", stage,
                       " needs an optimizer: name one in `optimizer`, or pass one to initialize()");
  }
  std::unique_ptr<optim::Optimizer> base;
  if (!groups.tensors.empty()) base = make_base_optimizer(config, client, model, std::move(groups.options));
  parts.given_groups = std::move(groups.given);
  return {.dtype = dtype,
          .client = std::move(client),
          .groups = std::move(groups),
          .base = std::move(base),
          .autocast_marks = {}};
}

// Whole parameters are broadcast from the first data-parallel rank, so only its copies are compared.
void require_alike_slices(const EngineParts& parts) {
  if (parts.groups.num_slices() == 1) return;
  const std::string own = difference_of_slices({.model = parts.groups.model,
                                                .slices = parts.groups.slices,
                                                .compares_whole = parts.data_group().rank() == 0},
                                               parts.model.alike_on_slices);
  for (const std::string& difference : parts.groups.all.all_gather_text(own)) {
    if (difference.empty()) continue;
    raise<UsageError>("the slices of a layer differ in a parameter that they share: ", difference,
                      "; give all slices the same values, or mark the part of a layer as such: by "
                      "Mpu::is_model_parallel_parameter(), in Python by `tensor_model_parallel = True` on "
                      "the parameter");
  }
}

// Third step: checks that all ranks got equal input and have enough memory, and makes buffers equal.
void agree_with_ranks(EngineParts& parts, const InitializeOptions& options, Ingredients& with) {
  const config::DeepSpeedConfig& config = parts.config;
  const RankInput input{.config = config,
                        .model = parts.model,
                        .optimizer = with.base.get(),
                        .own_optimizer = static_cast<bool>(with.client),
                        .own_schedule = static_cast<bool>(options.lr_scheduler)};
  const comm::ProcessGroup& data = parts.data_group();
  if (parts.groups.shares_model()) require_agreement_of_options(parts.groups.all, input);
  require_agreement(data, input);
  require_alike_slices(parts);
  check_host_memory(parts.model, with.groups.tensors, config, parts.world,
                    config.zero_optimization.num_shards(data.size()));
  prepare_buffers(parts.model, data);
  parts.autocast = autocast_dtype(config.torch_autocast, parts.model.device().type());
  if (!parts.autocast) return;
  with.autocast_marks =
      mark_autocast_params(parts.model, *parts.autocast, config.torch_autocast.lower_precision_safe_modules);
}

zero::ZeroOptions zero_options_of(const EngineParts& parts, const optim::Optimizer& base,
                                  zero::ParamDtypes autocast_marks, zero::ParamUnits units) {
  const config::DeepSpeedConfig& config = parts.config;
  zero::ZeroOptions zero = zero_options(config, parts.data_group().size());
  zero.gradients.param_communication_dtypes = std::move(autocast_marks);
  zero.gradients.by_rows = row_parameters(config, parts.model);
  zero.gradients.units = std::move(units);
  for (const at::Tensor& param : parts.model.counted_elsewhere)
    zero.update.counted_elsewhere.insert(param.unsafeGetTensorImpl());
  if (!parts.groups.is_first_slice) {
    for (const NamedTensor& param : parts.model.alike_on_slices)
      zero.update.counted_elsewhere.insert(param.tensor.unsafeGetTensorImpl());
  }
  zero.update.check_overflow = zero.update.check_overflow || parts.autocast == at::kHalf ||
                               (base.compresses_exchange() && !config.bf16.enabled);
  zero.update.offload = optimizer_offload(config, parts.world.rank(), parts.autocast);
  // Gradients of weights that ranks share change once more between backward and step.
  if (parts.groups.shares_model()) zero.update.offload.super_offload = false;
  return zero;
}

// Fourth step: partitions parameters, gradients and states as the stage asks.
void partition(EngineParts& parts, Ingredients with) {
  const config::DeepSpeedConfig& config = parts.config;
  const zero::ZeroGroups& ranks = parts.groups.zero;
  ModelStore store = make_store(config, std::move(with.groups.tensors), parts.model, ranks, with.dtype);
  parts.pool = std::move(store.pool);
  zero::ParamUnits units;
  if (parts.pool) units = join_leaf_modules(parts.model, config.zero_optimization, *parts.pool);
  if (!with.base) {
    parts.params = std::move(store.params);
    return;
  }
  zero::ZeroOptions zero =
      zero_options_of(parts, *with.base, std::move(with.autocast_marks), std::move(units));
  use_cores_for_step(config, parts.world, parts.autocast, zero.update.offload);
  parts.optimizer = std::make_shared<zero::ZeroOptimizer>(
      std::move(store.params), std::move(with.base), make_loss_scaler(config, parts.autocast), ranks, zero);
  follow_units(parts.optimizer, parts.pool);
}

// Throws UsageError if zero::Init has given ranks with different parts of the model equal values. It gives
// all ranks of its group the first rank's values.
void require_own_values(const NamedTensor& param, const RankLayout& layout) {
  const std::vector<int> holders = zero::ranks_that_hold(param.tensor);
  const bool is_of_slice =
      std::ranges::all_of(holders, [&](int rank) { return std::ranges::count(layout.data, rank) > 0; });
  if (is_of_slice) return;
  raise<UsageError>(
      "parameter '", param.name,
      "' is a part of the model that the ranks do not all hold, but was partitioned by zero::Init ", "over ",
      holders.size(), " ranks, which gave them the values of one; pass `mpu` to ", "zero::Init too");
}

void find_alike_on_slices(EngineModel& model, const Mpu& mpu, const RankLayout& layout) {
  for (const NamedTensor& param : model.parameters) {
    const bool is_part = mpu.is_model_parallel_parameter(param.tensor);
    if (is_part || layout.num_stages > 1) require_own_values(param, layout);
    if (!is_part) model.alike_on_slices.push_back(param);
  }
}

}  // namespace

EngineParts build_engine(EngineModel model, const InitializeOptions& options) {
  const comm::World world = find_world(options);
  const RankLayout layout = find_layout(options, world);
  if (options.mpu && layout.model.size() > 1) find_alike_on_slices(model, *options.mpu, layout);
  return build_engine(std::move(model), options, world, layout);
}

EngineParts build_engine(EngineModel model, const InitializeOptions& options, const comm::World& world,
                         const RankLayout& layout) {
  EngineParts parts = begin_parts(std::move(model), options, world, layout);
  Ingredients ingredients = prepare_model(parts, options);
  const TorchOptimizerPtr client = ingredients.client.torch;
  agree_with_ranks(parts, options, ingredients);
  partition(parts, std::move(ingredients));
  parts.lr_scheduler = make_scheduler(parts.config, options, client, parts.optimizer.get());
  static std::once_flag has_released;
  std::call_once(has_released, &device::release_library_pages);
  parts.seed = start_rank_streams({.config_seed = parts.config.seed,
                                   .divides_default = options.starts_rank_streams,
                                   .may_be_seeded = options.mpu || parts.groups.shares_model()},
                                  world, parts.groups);
  return parts;
}

}  // namespace deepspeed
