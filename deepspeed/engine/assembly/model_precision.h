// Chooses the precision of a model that the program has converted itself.
#pragma once

#include <c10/core/DeviceType.h>

namespace deepspeed {

namespace config {
struct DeepSpeedConfig;
}
struct EngineModel;

/// Enables fp16 or bf16 in the config if all parameters already have that dtype. Changes the config only if
/// it enables neither, and logs the change. fp16 gets a loss scale of 1, or GradScaler's dynamic one with
/// torch_autocast to fp16. `device`: where the model will be.
void follow_model_precision(config::DeepSpeedConfig& config, const EngineModel& model, at::DeviceType device);

}  // namespace deepspeed
