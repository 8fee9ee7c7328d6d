#include "deepspeed/engine/build.h"

#include <cmath>
#include <set>
#include <utility>

#include <ATen/Parallel.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/current_device.h"
#include "deepspeed/device/threads.h"
#include "deepspeed/engine/autocast.h"
#include "deepspeed/engine/initialize_arguments.h"
#include "deepspeed/engine/model_store.h"
#include "deepspeed/engine/param_groups.h"
#include "deepspeed/engine/seed.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/lr_scheduler_factory.h"
#include "deepspeed/optim/torch_optimizer.h"
#include "deepspeed/precision/loss_scaler.h"

namespace deepspeed {
namespace {

using TorchOptimizerPtr = std::shared_ptr<torch::optim::Optimizer>;

at::ScalarType model_dtype(const config::DeepSpeedConfig& config) {
  if (config.fp16.enabled) return at::kHalf;
  if (config.bf16.enabled) return at::kBFloat16;
  return at::kFloat;
}

std::optional<at::ScalarType> dtype_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return *name == "fp16" ? at::kHalf : *name == "bf16" ? at::kBFloat16 : at::kFloat;
}

// Of accumulated gradients; none: the model's.
std::optional<at::ScalarType> accumulation_dtype(const config::DeepSpeedConfig& config) {
  if (config.bf16.enabled && config.bf16.immediate_grad_update) return at::kFloat;
  return dtype_of(config.data_types.grad_accum_dtype);
}

at::ScalarType communication_dtype(const config::DeepSpeedConfig& config) {
  if (config.communication_data_type) return *dtype_of(config.communication_data_type);
  // Stages 0 and 1 reduce the accumulated sums, stage 2 the gradients of each backward.
  if (config.zero_optimization.stage < 2) return accumulation_dtype(config).value_or(model_dtype(config));
  return model_dtype(config);
}

zero::Averaging averaging(const config::DeepSpeedConfig& config, int world_size) {
  if (config.gradient_allreduce_op == "sum") return zero::Averaging::sum();
  if (config.prescale_gradients) return zero::Averaging::prescaled_mean(world_size);
  if (config.gradient_predivide_factor != 1.0) {
    return zero::Averaging::predivided_mean(world_size, config.gradient_predivide_factor);
  }
  // A sum over the ranks may leave the range of fp16 where the mean does not; DeepSpeed's stages 1 and 2
  // divide first.
  const bool scatters = config.zero_optimization.stage >= 1 && config.zero_optimization.reduce_scatter;
  if (scatters && communication_dtype(config) == at::kHalf)
    return zero::Averaging::prescaled_mean(world_size);
  return zero::Averaging::mean(world_size);
}

// fp16 always, bf16 by config. In fp32 the norm that clipping reads shows it as well.
bool checks_overflow(const config::DeepSpeedConfig& config) {
  if (config.fp16.enabled) return true;
  return config.bf16.enabled ? config.bf16.check_grad_overflow : config.gradient_clipping > 0.0;
}

zero::ZeroOptions zero_options(const config::DeepSpeedConfig& config, int world_size) {
  const auto& zero = config.zero_optimization;
  zero::ZeroOptions options;
  options.stage = static_cast<int>(zero.stage);
  options.gradient_clipping = config.gradient_clipping;
  options.check_overflow = checks_overflow(config);
  options.reduce_bucket_numel = zero.reduce_bucket_size;
  options.contiguous_gradients = zero.contiguous_gradients;
  options.reduce_scatter = zero.reduce_scatter;
  options.multi_rank_buckets = zero.use_multi_rank_bucket_allreduce;
  options.ignore_unused_parameters = zero.ignore_unused_parameters;
  options.gather = {zero.allgather_partitions, zero.allgather_bucket_size};
  options.overlap_comm = zero.overlap_comm.value_or(zero.stage == 3);
  options.communication_dtype = communication_dtype(config);
  options.accumulation_dtype = accumulation_dtype(config);
  options.sixteen_bit_masters =
      config.fp16.fp16_master_weights_and_grads || config.bf16.bf16_master_weights_and_grads;
  options.averaging = averaging(config, world_size);
  return options;
}

// torch.amp.GradScaler's defaults: what fp16 autocast needs, whose parameters and gradients stay in fp32.
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

// As in DeepSpeed, the model goes to the device of its rank.
void move_to_device(const EngineModel& model, const comm::World& world) {
  if (world.group().backend() != "nccl") return;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(device::current_cuda_device()));
  for (const auto* tensors : {&model.parameters, &model.buffers}) {
    for (const zero::NamedTensor& entry : *tensors) {
      if (entry.tensor.device() != device) entry.tensor.set_data(entry.tensor.detach().to(device));
    }
  }
}

void cast_buffers(const EngineModel& model, const std::optional<at::ScalarType>& dtype) {
  if (!dtype) return;
  for (const zero::NamedTensor& buffer : model.buffers) {
    if (buffer.tensor.is_floating_point()) buffer.tensor.set_data(buffer.tensor.detach().to(*dtype));
  }
}

// Equal on all ranks.
void prepare_buffers(const EngineModel& model, const comm::ProcessGroup& group) {
  const bool alone = group.size() == 1;
  for (const zero::NamedTensor& buffer : model.buffers) {
    if (alone || buffer.tensor.numel() == 0) continue;
    const at::Tensor values = buffer.tensor.detach().contiguous();
    group.broadcast(values, 0);
    buffer.tensor.detach().copy_(values);
  }
}

// DeepSpeed's list of optimizers that were tested with ZeRO; others want zero_allow_untested_optimizer. A
// class of one of these names outside torch and this library does not get this far: its updates need whole
// parameters.
void check_optimizer(const config::DeepSpeedConfig& config, const std::string& name) {
  static const std::set<std::string> tested = {"FusedAdam", "DeepSpeedCPUAdam",    "Adam",
                                               "AdamW",     "FusedLion",           "DeepSpeedCPULion",
                                               "Adagrad",   "DeepSpeedCPUAdagrad", "Muon"};
  if (config.zero_optimization.stage == 0 || config.zero_allow_untested_optimizer || tested.count(name) != 0)
    return;
  raise<ConfigError>("config", "zero_allow_untested_optimizer: ", name, " was not tested with ZeRO stage ",
                     config.zero_optimization.stage, "; set it to true to use it all the same");
}

// With bf16_optimizer_states Adam's moments are bf16; the other optimizers have no such state.
Json optimizer_params(const config::DeepSpeedConfig& config) {
  Json params = config.optimizer->params;
  const bool is_adam = optim::is_adam(config.optimizer->type);
  if (!config.bf16.bf16_optimizer_states || !is_adam) return params;
  if (params.is_null()) params = Json::object();
  if (!params.contains("moment_dtype")) params["moment_dtype"] = "bf16";
  return params;
}

// The weights of embeddings, whose gradients sparse_gradients sends as rows.
zero::ParamSet row_parameters(const config::DeepSpeedConfig& config, const EngineModel& model) {
  zero::ParamSet found;
  if (!config.sparse_gradients) return found;
  if (config.zero_optimization.stage >= 2) {
    log::warning("[config] without effect: sparse_gradients (stage ", config.zero_optimization.stage,
                 " reduces each gradient to its owners, whole)");
    return found;
  }
  for (const ModuleParameters& module : model.modules) {
    if (module.class_name != "torch::nn::EmbeddingImpl" && module.class_name != "torch::nn::EmbeddingBagImpl")
      continue;
    for (const at::Tensor& parameter : module.parameters) found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

std::unique_ptr<optim::Optimizer> make_base_optimizer(const config::DeepSpeedConfig& config,
                                                      const TorchOptimizerPtr& client,
                                                      const EngineModel& model,
                                                      std::vector<optim::ParamGroup> groups) {
  std::unique_ptr<optim::Optimizer> optimizer;
  if (client) {
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const auto& param : model.parameters) named.emplace_back(param.name, param.tensor);
    optimizer = std::make_unique<optim::TorchOptimizer>(client, named);
  } else {
    optimizer = optim::make_optimizer(config.optimizer->type, optimizer_params(config), std::move(groups));
  }
  check_optimizer(config, optimizer->name());
  if (config.bf16.bf16_optimizer_states && optimizer->state_dtype() != at::kBFloat16) {
    raise<ConfigError>("config", "bf16.bf16_optimizer_states: the state of ", optimizer->name(),
                       " is kept in float32; name Adam or AdamW in `optimizer`, or pass a FusedAdam with "
                       "moment_dtype bfloat16");
  }
  return optimizer;
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

}  // namespace

EngineParts build_engine(EngineModel model, const InitializeOptions& options) {
  const config::ConfigSource source = find_config(options);
  const comm::World world = find_world(options);
  log::set_rank(world.rank());
  config::DeepSpeedConfig config = config::load_config(source, world.size());
  if (config.log_level) log::set_level(log::level_from_name(*config.log_level));
  if (config.dump_state) log::info("config: ", config.raw.dump(2));
  device::set_threads_per_rank(world.local_size());

  const at::ScalarType dtype = model_dtype(config);
  move_to_device(model, world);
  const TorchOptimizerPtr client = find_optimizer(model, options);
  OptimizerGroups groups = make_param_groups(model, config, options, client.get());
  cast_buffers(model, dtype_of(config.data_types.buffer_dtype));
  if (groups.tensors.empty() && config.zero_optimization.stage > 0) {
    raise<ConfigError>("config", "zero_optimization.stage ", config.zero_optimization.stage,
                       " needs an optimizer: name one in `optimizer`, or pass one to initialize()");
  }
  prepare_buffers(model, world.group());
  const auto autocast = autocast_dtype(config.torch_autocast, model.device().type());
  zero::ParamDtypes autocast_marks;
  if (autocast) {
    autocast_marks =
        mark_autocast_params(model, *autocast, config.torch_autocast.lower_precision_safe_modules);
  }
  std::shared_ptr<zero::ZeroOptimizer> optimizer;
  std::unique_ptr<optim::Optimizer> base;
  if (!groups.tensors.empty()) base = make_base_optimizer(config, client, model, std::move(groups.options));
  ModelStore store =
      make_store(config.zero_optimization, std::move(groups.tensors), model, world.group(), dtype);
  if (base) {
    zero::ZeroOptions zero = zero_options(config, world.size());
    zero.check_overflow = zero.check_overflow || autocast == at::kHalf;
    zero.param_communication_dtypes = std::move(autocast_marks);
    zero.by_rows = row_parameters(config, model);
    optimizer = std::make_shared<zero::ZeroOptimizer>(
        std::move(store.params), std::move(base), make_loss_scaler(config, autocast), world.group(), zero);
  }
  auto scheduler = make_scheduler(config, options, client, optimizer.get());
  const uint64_t seed = start_rank_streams(config.seed, world);
  return {std::move(config),    world, std::move(model), std::move(optimizer),
          std::move(scheduler), seed,  autocast,         std::move(store.pool)};
}

}  // namespace deepspeed
