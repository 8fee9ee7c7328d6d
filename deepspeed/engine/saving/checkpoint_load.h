// The parts of load_checkpoint() (saving/checkpoints.h): module, optimizer and run. Each part opens its
// files, checks that they fit, verifies their bytes and loads them. checkpoint_load.cpp calls the functions
// for these steps in order.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/run_state.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/saving/training_state.h"

namespace deepspeed {

/// Describes one of the model's tensors as stored. It is read when it is needed: at stage 3 the whole model
/// may exceed a rank's memory.
struct StoredTensor {
  std::string name;
  at::Tensor form;                   // on the meta device
  std::function<at::Tensor()> load;  // null: values come with the optimizer's masters
};

/// Holds one call of load_checkpoint(): its arguments, then the files that it opened. Nothing of the training
/// changes until all ranks have opened and checked their files.
struct CheckpointLoad {
  TrainingState& training;
  EngineParts& parts;
  const std::string& directory;
  const LoadOptions& options;
  std::string tag = {};

  std::filesystem::path path = {};  // of the model file
  bool is_sharded = false;          // written at stage 3
  int mp_rank = 0;                  // model-parallel rank that wrote the file
  std::shared_ptr<const checkpoint::TagArchives> archives = {};
  std::shared_ptr<checkpoint::DeferredArchive> file = {};  // the model file
  checkpoint::ModelStates states = {};
  checkpoint::Dict client_state = {};
  std::vector<StoredTensor> module = {};
  std::optional<checkpoint::OptimizerFiles> optimizer = {};  // nothing: not requested
  std::optional<checkpoint::RunState> run = {};              // nothing: written by DeepSpeed itself
  bool has_own_run = false;                                  // run is this rank's; false: it is rank 0's

  bool wants_optimizer() const {
    return parts.optimizer != nullptr && options.load_optimizer_states && !options.load_module_only;
  }
};

// The model's own tensors: checkpoint_load_module.cpp.

/// Opens the model's tensors. Call open_optimizer() first: its files may hold the same weights.
void open_module(CheckpointLoad& load);
/// Throws MisfitError if sizes or, with load_module_strict, names differ from the model's.
void check_module(const CheckpointLoad& load);
void verify_module(const CheckpointLoad& load);
void load_module(const CheckpointLoad& load);

// The optimizer's masters, states and hyperparameters: checkpoint_load_optimizer.cpp. Except load_optimizer()
// these functions do nothing if the load does not want the optimizer.

void open_optimizer(CheckpointLoad& load);
/// Throws CheckpointError if the files have other groups, states or kinds of hyperparameters.
void check_optimizer(const CheckpointLoad& load);
void verify_optimizer(const CheckpointLoad& load);
/// Loads the hyperparameters of all groups, and the loss scaler.
void load_hyperparameters(const CheckpointLoad& load);
/// Loads masters and states. Masters that are not loaded are set from the model's weights, also if the load
/// does not want the optimizer.
void load_optimizer(const CheckpointLoad& load);
/// Sets the model's weights from the loaded masters unless the weights were loaded too. Collective.
void follow_masters(const CheckpointLoad& load);
/// Loads the optimizer state that differs between ranks (compression errors). If the checkpoint lacks this
/// state, it starts from zero, which is logged.
void load_rank_state(const CheckpointLoad& load);

// Counters, schedule, random numbers and the place in the data: checkpoint_load_run.cpp.

void open_run(CheckpointLoad& load);
/// Returns a function that restores all that load_run() changes.
std::function<void()> remember_run(const CheckpointLoad& load);
void load_run(const CheckpointLoad& load);

}  // namespace deepspeed
