#include "deepspeed/engine/assembly/model_precision.h"

#include <algorithm>

#include "deepspeed/base/log.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/autocast_marks.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {
namespace {

constexpr int64_t kScaleWindow = 2000;  // default of torch.amp.GradScaler

bool is_all_in(const EngineModel& model, at::ScalarType dtype) {
  const auto is_in = [dtype](const NamedTensor& param) { return param.tensor.scalar_type() == dtype; };
  return !model.parameters.empty() && std::ranges::all_of(model.parameters, is_in);
}

}  // namespace

void follow_model_precision(config::DeepSpeedConfig& config, const EngineModel& model,
                            at::DeviceType device) {
  if (config.fp16.enabled || config.bf16.enabled) return;
  const bool in_bf16 = is_all_in(model, at::kBFloat16);
  if (!in_bf16 && !is_all_in(model, at::kHalf)) return;
  const bool scales = autocast_dtype(config.torch_autocast, device) == at::kHalf;
  if (in_bf16) {
    config.bf16.enabled = true;
  } else {
    config.fp16.enabled = true;
    config.fp16.loss_scale = scales ? 0.0 : 1.0;
    if (scales) config.fp16.loss_scale_window = kScaleWindow;
    if (scales) config.fp16.hysteresis = 1;
  }
  log::info("[initialize] the model's parameters are in ", in_bf16 ? "bf16" : "fp16",
            ", and the config chooses no precision: they are trained in that, with master weights in fp32",
            in_bf16  ? ""
            : scales ? " and a dynamic loss scale"
                     : " and a loss scale of 1");
}

}  // namespace deepspeed
