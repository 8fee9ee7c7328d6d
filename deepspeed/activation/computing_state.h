// What a computation follows from beside its inputs: random numbers and autocast.
#pragma once

#include <array>

#include <c10/core/ScalarType.h>

#include "deepspeed/random/generator_states.h"

namespace deepspeed::checkpointing {

/// Autocast of a thread, of the CPU and of CUDA.
struct AutocastState {
  struct OfDevice {
    bool is_enabled = false;
    at::ScalarType dtype = at::kFloat;
  };
  std::array<OfDevice, 2> devices;
  bool caches = true;

  static AutocastState now();
};

/// Sets autocast while it lives; casts of weights are cached within it alone.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState before_;
};

}  // namespace deepspeed::checkpointing
