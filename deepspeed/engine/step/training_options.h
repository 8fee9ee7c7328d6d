// The engine's calls take these arguments.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed {

/// Holds the arguments of Engine::backward().
struct BackwardOptions {
  bool retain_graph = false;
  bool scale_wrt_gas = true;        // divide the loss by the accumulation steps
  bool allreduce_gradients = true;  // false: stages 0 and 1 only add; Engine::allreduce_gradients() reduces
  bool release_loss = false;        // return no tensor
};

/// Holds the arguments of Engine::step().
struct StepOptions {
  /// Names the schedule's step to go to, instead of the next one (DeepSpeed's lr_kwargs
  /// {"last_batch_iteration": n}).
  std::optional<int64_t> last_batch_iteration = {};
};

/// Holds the arguments of Engine::destroy().
struct DestroyOptions {
  /// Leaves the parameters partitioned at stage 3, as a model wants it that is too large for the memory of a
  /// rank.
  bool keep_partitioned = false;
};

/// Holds the arguments of Engine::compile().
struct DEEPSPEED_API CompileOptions {
  std::string backend = "inductor";
  Json compile_kwargs = Json::object();
  Json schedule = nullptr;  // of passes over a compiled graph; null: none
  bool compiled_autograd_enabled = false;
};

/// Arguments of Engine::install_preemption_handler().
struct PreemptionOptions {
  int signal = SIGTERM;
  /// Says after how many updates, each time, the ranks begin to compare notes: one reduction of 8 bytes
  /// between CPUs, which takes its time beside the next update.
  int64_t check_every = 1;
};

/// Kinds of states that can leave the device for a while.
enum class OffloadStateTypeEnum {
  optim_states,           // the optimizer's: moments, ...
  hp_params,              // fp32 masters; of a model in fp32 there are none beside the parameters
  lp_params,              // this rank's shards of the parameters
  lp_grads,               // this rank's shards of the reduced gradients
  contiguous_grad_buffer  // in which gradients travel: it lives during backward alone
};

enum class OffloadDeviceEnum { none, cpu, nvme };

/// Arguments of Engine::offload_states().
struct OffloadStatesOptions {
  std::optional<std::vector<OffloadStateTypeEnum>> include = {};  // absent: all
  OffloadDeviceEnum device = OffloadDeviceEnum::cpu;
  bool pin_memory = true;     // into page-locked memory
  bool non_blocking = false;  // the copies are done where the device's current stream is
};

}  // namespace deepspeed
