// The place of the optimizer's state and of its step.
#pragma once

#include <cstdint>

#include "deepspeed/device/threads/core_binding.h"
#include "deepspeed/zero/offload/state_swapper.h"

namespace deepspeed::zero {

enum class OffloadDevice { kNone, kCpu, kNvme };

/// Says which parts of the optimizer are offloaded. With kCpu, masters, states and step are in host memory.
/// With kNvme, masters and states are on a disk, apart from the slices being stepped.
struct OptimizerOffload {
  OffloadDevice device = OffloadDevice::kNone;
  bool pin_memory = true;               // page-locked host memory, if there is CUDA
  double ratio = 1.0;                   // stage 3: the share of elements that is offloaded
  int64_t piece_numel = 1'000'000'000;  // stages 1 and 2: the most elements in a slice
  StateSwapperOptions swapper = {};     // kNvme
  /// Steps slices while backward makes the gradients of others, in a worker on `worker_cores`. This is for
  /// kCpu at stages 2 and 3, without clipping. If gradients overflow and that is checked, the worker's steps
  /// are undone.
  bool super_offload = false;
  device::Cores worker_cores = {};
  /// Copies on a CPU as if the model's memory were not the host's; for tests.
  bool always_copies = false;

  bool is_on() const { return device != OffloadDevice::kNone; }
  /// Returns whether gradients wait for the step in host memory. This requires that all slices are offloaded
  /// and that each rank keeps only its own part of the gradients (`are_partitioned`).
  bool keeps_gradients(bool are_partitioned) const { return is_on() && ratio == 1.0 && are_partitioned; }
};

}  // namespace deepspeed::zero
