// The precision of a model that its client has converted itself.
#pragma once

namespace deepspeed {

namespace config {
struct DeepSpeedConfig;
}
struct EngineModel;

/// Where the config chooses no precision and all parameters of the model are in one 16-bit type, it is
/// trained in that: the config gets the section, fp16 with a loss scale of 1. A line of the log says so.
void follow_model_precision(config::DeepSpeedConfig& config, const EngineModel& model);

}  // namespace deepspeed
