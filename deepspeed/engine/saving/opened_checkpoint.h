// A checkpoint whose files are open and parsed holds all that a load needs to know before it changes the
// engine.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/run_state.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"
#include "deepspeed/engine/saving/stored_module.h"

namespace deepspeed {

struct OpenedCheckpoint {
  std::filesystem::path path;  // of the model file
  bool is_sharded = false;     // written at stage 3
  int mp_rank = 0;             // of that file's place among the ranks that shared the model out
  std::shared_ptr<const checkpoint::TagArchives> archives;
  std::shared_ptr<checkpoint::DeferredArchive> file;  // the model file
  checkpoint::ModelStates states;
  StoredModule module;
  std::optional<checkpoint::OptimizerFiles> optimizer;  // nothing: not asked for
  std::optional<checkpoint::RunState> run;              // nothing: written by DeepSpeed itself
  bool has_own_run = false;                             // of this rank; false: of rank 0
  checkpoint::Dict client_state;
};

}  // namespace deepspeed
