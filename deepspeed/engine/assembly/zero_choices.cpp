#include "deepspeed/engine/assembly/zero_choices.h"

namespace deepspeed {

at::ScalarType model_dtype(const config::DeepSpeedConfig& config) {
  if (config.fp16.enabled) return at::kHalf;
  if (config.bf16.enabled) return at::kBFloat16;
  return at::kFloat;
}

std::optional<at::ScalarType> dtype_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return *name == "fp16" ? at::kHalf : *name == "bf16" ? at::kBFloat16 : at::kFloat;
}

namespace {

// Returns the dtype of accumulated gradients; nothing means the model's.
std::optional<at::ScalarType> accumulation_dtype(const config::DeepSpeedConfig& config) {
  if (config.bf16.enabled && config.bf16.immediate_grad_update) return at::kFloat;
  return dtype_of(config.data_types.grad_accum_dtype);
}

at::ScalarType communication_dtype(const config::DeepSpeedConfig& config) {
  if (config.communication_data_type) return *dtype_of(config.communication_data_type);
  // Stages 0 and 1 reduce the accumulated sums. Stages 2 and 3 reduce the gradients of each backward.
  if (config.zero_optimization.stage < 2) return accumulation_dtype(config).value_or(model_dtype(config));
  return model_dtype(config);
}

zero::Averaging averaging(const config::DeepSpeedConfig& config, int world_size) {
  if (config.gradient_allreduce_op == "sum") return zero::Averaging::sum();
  if (config.prescale_gradients) return zero::Averaging::prescaled_mean(world_size);
  if (config.gradient_predivide_factor != 1.0) {
    return zero::Averaging::predivided_mean(world_size, config.gradient_predivide_factor);
  }
  // In fp16 a sum over the ranks may overflow although the mean does not. DeepSpeed's stages 1 and 2 divide
  // first.
  const bool scatters = config.zero_optimization.stage >= 1 && config.zero_optimization.reduce_scatter;
  if (scatters && communication_dtype(config) == at::kHalf)
    return zero::Averaging::prescaled_mean(world_size);
  return zero::Averaging::mean(world_size);
}

// Overflow is always checked in fp16, and in bf16 if the config says so. In fp32 it is checked with clipping,
// whose norm of the gradients shows it anyway.
bool checks_overflow(const config::DeepSpeedConfig& config) {
  if (config.fp16.enabled) return true;
  return config.bf16.enabled ? config.bf16.check_grad_overflow : config.gradient_clipping > 0.0;
}

}  // namespace

zero::ZeroOptions zero_options(const config::DeepSpeedConfig& config, int world_size) {
  zero::ZeroOptions options;
  options.gradients.keys = config.zero_optimization;
  // Without managed accumulation, every backward waits for step().
  options.gradients.expects_accumulation =
      config.gradient_accumulation_steps > 1 || !config.managed_gradient_accumulation;
  options.gradients.overlap = config.zero_optimization.overlaps_comm();
  options.gradients.communication_dtype = communication_dtype(config);
  options.gradients.replica_dtype = dtype_of(config.communication_data_type);
  options.gradients.accumulation_dtype = accumulation_dtype(config);
  options.gradients.averaging = averaging(config, world_size);
  options.gradients.is_quantized = config.zero_optimization.zero_quantized_gradients;
  if (const auto& loco = config.zero_optimization.zeropp_loco_param)
    options.gradients.loco = zero::LocoOptions{loco->err_beta, loco->reset_T};
  options.update.gradient_clipping = config.gradient_clipping;
  options.update.check_overflow = checks_overflow(config);
  options.update.sixteen_bit_masters =
      config.fp16.fp16_master_weights_and_grads || config.bf16.bf16_master_weights_and_grads;
  options.update.split_masters = config.bf16.split_master_weights;
  options.gather = config.zero_optimization;
  return options;
}

}  // namespace deepspeed
