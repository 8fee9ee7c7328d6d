#include "deepspeed/activation/recompute/autocast_state.h"

#include <ATen/autocast_mode.h>

namespace deepspeed::activation {

AutocastState AutocastState::now() {
  const auto of = [](c10::DeviceType device) {
    return OfDevice{device, at::autocast::is_autocast_enabled(device),
                    at::autocast::get_autocast_dtype(device)};
  };
  return {{of(c10::DeviceType::CPU), of(c10::DeviceType::CUDA)}, at::autocast::is_autocast_cache_enabled()};
}

void AutocastState::set() const {
  for (const OfDevice& state : devices) {
    at::autocast::set_autocast_enabled(state.device, state.enabled);
    at::autocast::set_autocast_dtype(state.device, state.dtype);
  }
  at::autocast::set_autocast_cache_enabled(keeps_casts);
}

RepeatAutocast::RepeatAutocast(const AutocastState& state) : before_(AutocastState::now()) {
  at::autocast::increment_nesting();
  state.set();
}

RepeatAutocast::~RepeatAutocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.set();
}

}  // namespace deepspeed::activation
