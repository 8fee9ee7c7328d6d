// Arguments of Engine::offload_states(), under DeepSpeed's names.
#pragma once

#include <optional>
#include <vector>

namespace deepspeed {

/// Kinds of states that can leave the device for a while.
enum class OffloadStateTypeEnum {
  optim_states,           // the optimizer's: moments, ...
  hp_params,              // fp32 masters; of a model in fp32 there are none beside the parameters
  lp_params,              // this rank's shards of the parameters
  lp_grads,               // this rank's shards of the reduced gradients
  contiguous_grad_buffer  // in which gradients travel: it lives during backward alone
};

enum class OffloadDeviceEnum { none, cpu, nvme };

struct OffloadStatesOptions {
  std::optional<std::vector<OffloadStateTypeEnum>> include = {};  // absent: all
  OffloadDeviceEnum device = OffloadDeviceEnum::cpu;
  bool pin_memory = true;     // into page-locked memory
  bool non_blocking = false;  // the copies are done where the device's current stream is
};

}  // namespace deepspeed
