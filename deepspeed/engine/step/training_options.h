// Arguments of the engine's calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/base/json.h"

namespace deepspeed {

/// Arguments of Engine::backward().
struct BackwardOptions {
  bool retain_graph = false;
  bool scale_wrt_gas = true;        // divide the loss by the accumulation steps
  bool allreduce_gradients = true;  // false: stages 0 and 1 only add; Engine::allreduce_gradients() reduces
  bool release_loss = false;        // return no tensor
};

/// Arguments of Engine::step().
struct StepOptions {
  /// The schedule's step to go to, instead of the next one (DeepSpeed's lr_kwargs {"last_batch_iteration":
  /// n}).
  std::optional<int64_t> last_batch_iteration = {};
};

/// Arguments of Engine::destroy().
struct DestroyOptions {
  /// Stage 3: the parameters stay partitioned, as a model wants it that is too large for the memory of a
  /// rank.
  bool keep_partitioned = false;
};

/// Arguments of Engine::compile().
struct CompileOptions {
  std::string backend = "inductor";
  Json compile_kwargs = Json::object();
  Json schedule = nullptr;  // of passes over a compiled graph; null: none
  bool compiled_autograd_enabled = false;
};

}  // namespace deepspeed
