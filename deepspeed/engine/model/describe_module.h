// Describes a torch::nn::Module to the engine.
#pragma once

#include <memory>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/model/model.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {

/// Returns the parameters and buffers of a module and its children.
DEEPSPEED_API EngineModel describe_module(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace deepspeed
