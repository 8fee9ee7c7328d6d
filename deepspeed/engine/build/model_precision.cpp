#include "deepspeed/engine/build/model_precision.h"

#include <algorithm>

#include "deepspeed/base/log.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {
namespace {

bool is_all_in(const EngineModel& model, at::ScalarType dtype) {
  const auto is_in = [dtype](const NamedTensor& param) { return param.tensor.scalar_type() == dtype; };
  return !model.parameters.empty() && std::ranges::all_of(model.parameters, is_in);
}

}  // namespace

void follow_model_precision(config::DeepSpeedConfig& config, const EngineModel& model) {
  if (config.fp16.enabled || config.bf16.enabled || config.torch_autocast.enabled) return;
  const bool in_bf16 = is_all_in(model, at::kBFloat16);
  if (!in_bf16 && !is_all_in(model, at::kHalf)) return;
  if (in_bf16) {
    config.bf16.enabled = true;
  } else {
    config.fp16.enabled = true;
    config.fp16.loss_scale = 1.0;
  }
  log::info("[initialize] the model's parameters are in ", in_bf16 ? "bf16" : "fp16",
            ", and the config chooses no precision: they are trained in that, with master weights in fp32",
            in_bf16 ? "" : " and a loss scale of 1");
}

}  // namespace deepspeed
