#include "deepspeed/engine/model/autocast.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/model/autocast_marks.h"
#include "deepspeed/engine/model/describe_module.h"

namespace deepspeed {

std::optional<at::ScalarType> autocast_dtype(const config::TorchAutocastConfig& config,
                                             at::DeviceType device) {
  if (!config.enabled) return std::nullopt;
  if (!config.dtype) return precision::default_autocast_dtype(device);
  return *config.dtype == "fp16" ? at::kHalf : at::kBFloat16;
}

void init_autocast_params(const std::shared_ptr<torch::nn::Module>& model, at::ScalarType dtype,
                          const std::optional<std::vector<std::string>>& modules) {
  mark_autocast_params(describe_module(model), dtype, modules);
}

zero::ParamDtypes mark_autocast_params(const EngineModel& model, at::ScalarType dtype,
                                       const std::optional<std::vector<std::string>>& modules) {
  if (dtype != at::kHalf && dtype != at::kBFloat16 && dtype != at::kFloat) {
    raise<UsageError>("init_autocast_params() got dtype ", c10::toString(dtype),
                      ", expected Half, BFloat16 or Float");
  }
  const auto classes = modules.value_or(precision::get_default_autocast_lower_precision_modules());
  for (const NamedTensor& parameter : model.parameters) {
    precision::clear_autocast_dtype(parameter.tensor);
  }
  zero::ParamDtypes marks;
  bool any = false;
  for (const ModuleParameters& part : model.modules) {
    if (!precision::is_autocast_module(part.class_name, classes)) continue;
    for (const at::Tensor& parameter : part.parameters) {
      precision::set_autocast_dtype(parameter, dtype);
      marks.emplace(parameter.unsafeGetTensorImpl(), dtype);
    }
    any = true;
  }
  if (any || !modules || modules->empty()) return marks;
  log::warning(
      "[engine] torch_autocast.lower_precision_safe_modules: the model has no module of the classes named "
      "there, so all gradients are reduced in their own dtype");
  return marks;
}

}  // namespace deepspeed
