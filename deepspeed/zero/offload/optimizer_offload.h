// Where the optimizer's state and its step are.
#pragma once

#include <cstdint>

#include "deepspeed/device/threads/core_binding.h"
#include "deepspeed/zero/offload/state_swapper.h"

namespace deepspeed::zero {

enum class OffloadDevice { kNone, kCpu, kNvme };

/// With kCpu masters, states and step are in host memory; with kNvme masters and states are on a disk but for
/// the slices that are stepped.
struct OptimizerOffload {
  OffloadDevice device = OffloadDevice::kNone;
  bool pin_memory = true;  // page-locked host memory, where there is CUDA
  double ratio = 1.0;      // stage 3: the part of the elements that is offloaded; the rest stays where it is
  int64_t piece_numel = 1'000'000'000;  // stages 1 and 2: of the slices, at most
  StateSwapperOptions swapper = {};     // kNvme
  /// kCpu at stages 2 and 3, without clipping: slices are stepped while backward makes the gradients of
  /// others, by a worker on `worker_cores`. Where overflows are checked, what was stepped is taken back.
  bool super_offload = false;
  device::Cores worker_cores = {};
  /// Copies on a CPU as if the model's memory were another one than the host's; for tests.
  bool always_copies = false;

  bool is_on() const { return device != OffloadDevice::kNone; }
  /// Whether the gradients that wait for the step are in host memory: all slices are stepped outside of the
  /// device, and ranks keep no more than their own part (`are_partitioned`).
  bool keeps_gradients(bool are_partitioned) const { return is_on() && ratio == 1.0 && are_partitioned; }
};

}  // namespace deepspeed::zero
