// DeepSpeed has these functions about the config's torch_autocast section.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/base/export.h"
#include "deepspeed/precision/autocast.h"

namespace torch::nn {
class Module;
}

namespace deepspeed {

/// Marks the parameters of the modules of these classes (default:
/// get_default_autocast_lower_precision_modules()) with the dtype in which their gradients are reduced, and
/// takes the marks of the model's other parameters away. Warns where no module is of any of the classes that
/// were named. initialize() calls it where the config's torch_autocast is enabled: an engine reduces by its
/// own config's marks alone, whatever is marked later. Throws UsageError for a model that is null and a dtype
/// that is no floating-point one of at most 32 bits.
DEEPSPEED_API void init_autocast_params(const std::shared_ptr<torch::nn::Module>& model, at::ScalarType dtype,
                                        const std::optional<std::vector<std::string>>& modules = {});

using precision::get_default_autocast_lower_precision_modules;
using precision::has_autocast_dtype;
using precision::is_autocast_initialized;

}  // namespace deepspeed
