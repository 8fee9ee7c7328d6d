// Describes a torch::nn::Module to the engine.
#pragma once

#include <memory>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/model/model.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {

/// Describes a module and its children: parameters, buffers and classes. Throws UsageError for null.
DEEPSPEED_API EngineModel describe_module(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace deepspeed
