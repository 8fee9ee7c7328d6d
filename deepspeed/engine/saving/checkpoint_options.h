// Engine::save_checkpoint and load_checkpoint take these arguments and give these results.
#pragma once

#include <functional>
#include <string>

#include "deepspeed/checkpoint/pickle/value.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

struct SaveOptions {
  std::string tag = {};                // one plain name; "": global_step<N>
  checkpoint::Dict client_state = {};  // the program's own values
  bool save_latest = true;
  bool exclude_frozen_parameters = false;
  /// Saves, with a warning, where gradients wait for a step: the checkpoint lacks them, and a run that
  /// resumes begins its accumulation window anew. false: that is a UsageError.
  bool without_waiting_gradients = false;
};

struct LoadOptions {
  std::string tag = {};  // "": the one named in `latest`
  bool load_module_strict = true;
  bool load_optimizer_states = true;
  bool load_lr_scheduler_states = true;
  bool load_module_only = false;
  /// Compares what this rank needs with its checksums before anything changes, for which it reads it twice;
  /// false: where a file is damaged, the engine holds parts of the checkpoint afterwards.
  bool verify_first = true;
  /// Sees the client_state on each rank before the engine changes: where it throws on one rank, the load
  /// ends on all.
  std::function<void(const checkpoint::Dict& client_state)> check_client_state = nullptr;
  /// Puts the file's tensors into the model, in place of the engine.
  std::function<void(const NamedTensors& tensors)> custom_load_fn = nullptr;
};

struct LoadResult {
  std::string path;  // of the model file that was read; "" where there was none
  checkpoint::Dict client_state;
};

}  // namespace deepspeed
