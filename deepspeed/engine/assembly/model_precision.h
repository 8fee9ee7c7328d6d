// The precision of a model that its client has converted itself.
#pragma once

#include <c10/core/DeviceType.h>

namespace deepspeed {

namespace config {
struct DeepSpeedConfig;
}
struct EngineModel;

/// Where the config has neither fp16 nor bf16 and all parameters of the model are in one of these types, it
/// is trained in that: the config gets the section. fp16 has a loss scale of 1, beside torch_autocast to fp16
/// the dynamic one of torch's GradScaler. `device`: where the model will lie. A line of the log says so.
void follow_model_precision(config::DeepSpeedConfig& config, const EngineModel& model, at::DeviceType device);

}  // namespace deepspeed
