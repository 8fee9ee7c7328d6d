// Arguments and results of Engine::save_checkpoint() and load_checkpoint().
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
  /// Allows a save while gradients wait for a step, with a warning. The checkpoint lacks them, and a resumed
  /// run restarts its accumulation window. false: such a save is a UsageError.
  bool without_waiting_gradients = false;
};

struct LoadOptions {
  std::string tag = {};  // "": the one named in `latest`
  bool load_module_strict = true;
  bool load_optimizer_states = true;
  bool load_lr_scheduler_states = true;
  bool load_module_only = false;
  /// Compares what this rank needs with its checksums before anything changes. Each file is then read twice.
  /// With false, a damaged file leaves the engine with parts of the checkpoint.
  bool verify_first = true;
  /// Checks the client_state on each rank before the engine changes. If it throws on one rank, the load fails
  /// on all.
  std::function<void(const checkpoint::Dict& client_state)> check_client_state = nullptr;
  /// Copies the file's tensors into the model. If null, the engine does so.
  std::function<void(const NamedTensors& tensors)> custom_load_fn = nullptr;
};

struct LoadResult {
  std::string path;  // of the model file that was read; "" if there was none
  checkpoint::Dict client_state;
};

}  // namespace deepspeed
