#include "deepspeed/config/training_config.h"

#include <cmath>

#include "deepspeed/base/error.h"
#include "deepspeed/config/batch.h"

namespace deepspeed::config {

const Members<BatchConfig>& BatchConfig::members() {
  using C = BatchConfig;
  static const Members<C> members({
      member("train_batch_size", &C::train_batch_size,
             "Samples of one optimizer step, of all ranks together."),
      member("train_micro_batch_size_per_gpu", &C::train_micro_batch_size_per_gpu,
             "Samples of one forward pass on one rank.", {alias("micro_batch_size")}),
      member("gradient_accumulation_steps", &C::gradient_accumulation_steps,
             "Forward and backward passes of one optimizer step."),
  });
  return members;
}

void BatchConfig::resolve_own(int64_t world_size) {
  try {
    const BatchSizes sizes = resolve_batch_sizes(
        {train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps}, world_size);
    train_batch_size = sizes.train_batch_size;
    train_micro_batch_size_per_gpu = sizes.train_micro_batch_size_per_gpu;
    gradient_accumulation_steps = sizes.gradient_accumulation_steps;
  } catch (const ConfigError&) {
    // Nothing can be inferred; validate says why.
    return;
  }
}

void BatchConfig::check_own(int64_t world_size) const {
  resolve_batch_sizes({train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps},
                      world_size);
}

const Members<FP16Config>& FP16Config::members() {
  using C = FP16Config;
  static const Members<C> members({
      member("enabled", &C::enabled, "Train in float16 with loss scaling."),
      member("clip", &C::clip, "The greatest norm of the gradients; 0: any."),
  });
  return members;
}

void FP16Config::check_own(int64_t) const {
  if (!std::isfinite(clip) || clip < 0)
    raise<ConfigError>("clip: got ", clip, ", expected a number of at least 0");
}

const Members<TrainingConfig>& TrainingConfig::members() {
  using C = TrainingConfig;
  static const Members<C> members({
      sub_config("batch", &C::batch, "The batch sizes."),
      sub_config("fp16", &C::fp16, "Training in float16."),
  });
  return members;
}

Json TrainingConfig::to_ds_config() const {
  Json config = Json::object();
  const Json sizes = batch.to_dict();
  for (const auto& [key, value] : sizes.items()) {
    if (!value.is_null()) config[key] = value;
  }
  config["fp16"] = {{"enabled", fp16.enabled}};
  config["gradient_clipping"] = fp16.clip;
  return config;
}

}  // namespace deepspeed::config
