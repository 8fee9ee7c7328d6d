#include "deepspeed/checkpoint/content/loss_scaler_states.h"

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kModule = "deepspeed.runtime.fp16.loss_scaler";
constexpr const char* kStatic = "LossScaler";
constexpr const char* kDynamic = "DynamicLossScaler";

}  // namespace

Value build_loss_scaler(const LossScalerStates& states) {
  Dict members = {{"cur_scale", states.cur_scale}, {"dynamic", states.dynamic}};
  if (states.dynamic) {
    members.set("cur_iter", states.cur_iter);
    members.set("last_overflow_iter", states.last_overflow_iter);
    members.set("scale_factor", states.scale_factor);
    members.set("scale_window", states.scale_window);
    members.set("min_scale", states.min_scale);
    members.set("delayed_shift", states.delayed_shift);
    members.set("cur_hysteresis", states.cur_hysteresis);
    members.set("consecutive_hysteresis", states.consecutive_hysteresis);
    members.set("raise_error_at_min_scale", states.raise_error_at_min_scale);
    members.set("dtype", DType{states.dtype});
  }
  return Object{kModule,
                states.dynamic ? kDynamic : kStatic,
                {},
                std::make_shared<Value>(std::move(members)),
                Object::Making::kNew};
}

LossScalerStates parse_loss_scaler(const Value& value) {
  const auto* object = value.get_if<Object>();
  if (object == nullptr || object->state == nullptr || object->module != kModule) {
    raise<CheckpointError>("the loss scaler is a ", value.kind(), ", expected an object of ", kModule);
  }
  const Dict& members = object->state->as_dict();
  LossScalerStates states;
  states.cur_scale = members.at("cur_scale").as_double();
  states.dynamic = object->name == kDynamic;
  if (!states.dynamic) return states;
  states.cur_iter = members.at("cur_iter").as_int();
  states.last_overflow_iter = members.at("last_overflow_iter").as_int();
  states.scale_factor = members.at("scale_factor").as_double();
  states.scale_window = members.at("scale_window").as_int();
  states.min_scale = members.at("min_scale").as_double();
  states.delayed_shift = members.at("delayed_shift").as_int();
  states.cur_hysteresis = members.at("cur_hysteresis").as_int();
  states.consecutive_hysteresis = members.at("consecutive_hysteresis").as_bool();
  states.raise_error_at_min_scale = members.at("raise_error_at_min_scale").as_bool();
  if (const Value* dtype = members.find("dtype"); dtype != nullptr && dtype->get_if<DType>() != nullptr) {
    states.dtype = dtype->get_if<DType>()->type;
  }
  return states;
}

}  // namespace deepspeed::checkpoint
