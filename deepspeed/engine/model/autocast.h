// DeepSpeed's functions for the config's torch_autocast section.
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

/// Marks parameters with the dtype in which their gradients are reduced. It marks the parameters of modules
/// of the given classes (default: get_default_autocast_lower_precision_modules()) and clears the marks of all
/// others. Warns if the model has no module of the named classes. initialize() calls it if the config enables
/// torch_autocast; an engine uses only its own config's marks, whatever is marked later. Throws UsageError
/// for a null model, and for a dtype other than Half, BFloat16 or Float.
DEEPSPEED_API void init_autocast_params(const std::shared_ptr<torch::nn::Module>& model, at::ScalarType dtype,
                                        const std::optional<std::vector<std::string>>& modules = {});

using precision::get_default_autocast_lower_precision_modules;
using precision::has_autocast_dtype;
using precision::is_autocast_initialized;

}  // namespace deepspeed
