// Arguments of the engine's calls.
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
  /// Sets the schedule to this step instead of the next one (DeepSpeed's lr_kwargs {"last_batch_iteration":
  /// n}).
  std::optional<int64_t> last_batch_iteration = {};
};

/// Holds the arguments of Engine::destroy().
struct DestroyOptions {
  /// Leaves the parameters partitioned at stage 3. Use it for a model too large for one rank's memory.
  bool keep_partitioned = false;
};

/// Holds the arguments of Engine::compile().
struct DEEPSPEED_API CompileOptions {
  std::string backend = "inductor";
  Json compile_kwargs = Json::object();
  Json schedule = nullptr;  // of passes over a compiled graph; null: none
  bool compiled_autograd_enabled = false;
};

/// Holds the arguments of Engine::install_preemption_handler().
struct PreemptionOptions {
  int signal = SIGTERM;
  /// Sets after how many updates the ranks compare their flags. A comparison is one 8-byte reduction between
  /// CPUs, which runs during the next update.
  int64_t check_every = 1;
};

/// Names the kinds of states that can leave the device for a while.
enum class OffloadStateTypeEnum {
  optim_states,           // the optimizer's: moments, ...
  hp_params,              // fp32 masters; an fp32 model has none besides its parameters
  lp_params,              // the parameters; at stage 3 this rank's shards of them
  lp_grads,               // this rank's shards of the reduced gradients
  contiguous_grad_buffer  // buffers that gradients are sent in; they exist only during backward
};

enum class OffloadDeviceEnum { none, cpu, nvme };

/// Holds the arguments of Engine::offload_states().
struct OffloadStatesOptions {
  std::optional<std::vector<OffloadStateTypeEnum>> include = {};  // absent: all
  OffloadDeviceEnum device = OffloadDeviceEnum::cpu;
  bool pin_memory = true;     // into page-locked memory
  bool non_blocking = false;  // copies are complete once the device's current stream reaches them
};

}  // namespace deepspeed
