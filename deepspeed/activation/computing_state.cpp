#include "deepspeed/activation/computing_state.h"

#include <ATen/autocast_mode.h>

namespace deepspeed::checkpointing {
namespace {

constexpr std::array<at::DeviceType, 2> kDevices = {at::kCPU, at::kCUDA};

void set(const AutocastState& state) {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], state.devices[i].is_enabled);
    at::autocast::set_autocast_dtype(kDevices[i], state.devices[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(state.caches);
}

}  // namespace

AutocastState AutocastState::now() {
  AutocastState state;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    state.devices[i] = {at::autocast::is_autocast_enabled(kDevices[i]),
                        at::autocast::get_autocast_dtype(kDevices[i])};
  }
  state.caches = at::autocast::is_autocast_cache_enabled();
  return state;
}

AutocastScope::AutocastScope(const AutocastState& state) : before_(AutocastState::now()) {
  at::autocast::increment_nesting();
  set(state);
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

}  // namespace deepspeed::checkpointing
