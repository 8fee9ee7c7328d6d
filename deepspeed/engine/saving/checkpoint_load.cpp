// Loads a checkpoint. Files are opened, compared with the engine and verified on all ranks before any rank
// changes anything.
#include "deepspeed/engine/saving/checkpoint_load.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/checkpoint/tag/tag_name.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;

// Names another tag that can be loaded, for messages.
std::string other_tags(const std::string& directory, const std::string& tag) {
  for (const std::string& other : checkpoint::find_complete_tags(directory)) {
    if (other == tag) continue;
    return message("; the newest other tag that is complete is '", other,
                   "': load_checkpoint() with this as its `tag` goes on from there");
  }
  return "; no other tag there is complete";
}

void require_tag(const std::string& directory, const std::string& tag) {
  if (fs::is_directory(fs::path(directory) / tag)) return;
  std::string others;
  for (const std::string& other : checkpoint::find_tags_with_model(directory))
    others += (others.empty() ? "'" : ", '") + other + "'";
  const bool has_folder = fs::is_directory(directory);
  raise<CheckpointError>(
      "there is no tag '", tag, "' in the folder ", fs::path(directory),
      !has_folder      ? std::string(", which does not exist")
      : others.empty() ? ", which has none"
                       : message(", which has the tags ", others),
      "; load_checkpoint() takes the one given as `tag`, otherwise the one that `latest` names");
}

// Without the counters a run would restart at step 0, with the initial learning rates.
void require_counters(const fs::path& file, const checkpoint::Dict& states) {
  for (const char* key : {"global_steps", "skipped_steps"}) {
    const checkpoint::Value* value = states.find(key);
    if (value != nullptr && !value->is_none()) continue;
    raise<CheckpointError>(
        "the file ", file, " lacks '", key,
        "', which says how far the training was; load_module_only = true loads only the weights");
  }
}

void warn_of_no_tag(const std::string& directory) {
  const std::vector<std::string> complete = checkpoint::find_complete_tags(directory);
  log::warning("[checkpoint] there is no `latest` in ", directory,
               ": nothing is loaded; pass a tag to choose one",
               complete.empty() ? "" : message(": the newest complete one is '", complete.front(), "'"));
}

std::string chosen_tag(const CheckpointLoad& load) {
  if (!load.options.tag.empty()) return load.options.tag;
  if (!load.parts.config.checkpoint.load_universal)
    return checkpoint::read_latest(load.directory).value_or("");
  if (const auto tag = checkpoint::read_latest_universal(load.directory)) return *tag;
  raise<CheckpointError>("there is no ", checkpoint::latest_universal_path(load.directory),
                         ", which checkpoint.load_universal needs; ds_to_universal makes one from another "
                         "checkpoint");
}

// Calls comm::on_all_ranks() over all ranks of the training.
void on_all_ranks(const CheckpointLoad& load, const std::function<void()>& work) {
  comm::on_all_ranks<CheckpointError>(load.parts.groups.all, "loading", work);
}

// Returns the tag that all ranks chose; "" if they found none.
std::string agreed_tag(const CheckpointLoad& load) {
  std::string tag;
  on_all_ranks(load, [&] { tag = chosen_tag(load); });
  const std::vector<std::string> tags = load.parts.groups.all.all_gather_text(tag);
  for (size_t rank = 0; rank < tags.size(); ++rank) {
    if (tags[rank] == tags[0]) continue;
    raise<CheckpointError>("the tag to load from ", load.directory, " is '", tags[rank], "' on rank ", rank,
                           ", and '", tags[0],
                           "' on rank 0, expected the same; do all ranks see the same folder?");
  }
  return tag;
}

// Returns the model-parallel rank of the checkpoint whose files this rank opens first. It is this rank's own
// number if the checkpoint has as many model-parallel ranks as the engine.
int first_mp_rank(const CheckpointLoad& load) {
  const size_t num_places = checkpoint::find_mp_ranks(load.directory, load.tag).size();
  const ParallelGroups& groups = load.parts.groups;
  if (num_places == size_t(groups.model_size())) return groups.model_rank();
  // The checkpoint has another number of stages. The first stage's file has what all stages of this slice
  // share.
  for (int place = 0; place < int(num_places); ++place) {
    if (groups.slice_of(place, int(num_places)) == groups.slice()) return place;
  }
  return 0;
}

void require_kind(const CheckpointLoad& load) {
  const bool is_pipeline = !load.parts.model.stored_layers.empty();
  if (is_pipeline != load.states.states.has_module) {
    if (is_pipeline) return;
    const size_t num_places = checkpoint::find_mp_ranks(load.directory, load.tag).size();
    if (int(num_places) == load.parts.groups.model_size()) return;
    raise<checkpoint::MisfitError>(load.path.parent_path(), " is a checkpoint of ", num_places,
                                   " model-parallel ranks, the engine has ", load.parts.groups.model_size(),
                                   "; load it with as many");
  }
  raise<checkpoint::MisfitError>(load.path.parent_path(),
                                 is_pipeline
                                     ? " is no checkpoint of a pipeline: it has the model as a whole; load "
                                       "it into an engine of the whole model"
                                     : " is a checkpoint of a pipeline: load it into a PipelineModule, or "
                                       "make weights of it by zero_to_fp32");
}

// Opens the tag's model file, which has the small values that all parts share.
void open_model_file(CheckpointLoad& load) {
  load.mp_rank = first_mp_rank(load);
  const auto sharded = checkpoint::find_sharded_model_states(load.directory, load.tag, load.mp_rank);
  load.is_sharded = !sharded.empty();
  load.path = load.is_sharded ? sharded.front()
                              : checkpoint::model_states_path(load.directory, load.tag, load.mp_rank);
  const fs::path folder = load.path.parent_path();
  load.archives = std::make_shared<const checkpoint::TagArchives>(
      folder, checkpoint::TagArchives::Options{.looks_around = load.parts.groups.all.rank() == 0});
  // Files that this load does not read may be missing.
  const auto is_needed = [&](const std::string& name) {
    if (checkpoint::is_optimizer_file(name)) return load.is_sharded || load.wants_optimizer();
    return !load.options.load_module_only || !checkpoint::is_rng_file(name);
  };
  if (const auto damage = checkpoint::find_damage(folder, load.archives->manifest(), is_needed)) {
    raise<CheckpointError>(*damage, load.is_sharded && !load.wants_optimizer()
                                        ? "; the checkpoint is of stage 3, whose weights are in these files"
                                        : "");
  }
  if (!fs::exists(load.path)) raise<CheckpointError>("the file ", load.path, " is missing");
  load.file = load.archives->open(load.path);
  load.states = checkpoint::parse_model_states(load.file->value());
  if (!load.options.load_module_only) require_counters(load.path, load.file->value().as_dict());
  require_kind(load);
  load.client_state = load.file->load(checkpoint::Value(load.states.client_state)).as_dict();
}

// Calls `read`. If a file is missing or damaged, the error names another tag that can be loaded.
void naming_other_tags(const CheckpointLoad& load, const std::function<void()>& read) {
  try {
    read();
  } catch (const checkpoint::MisfitError&) {
    throw;  // another tag of this training would not fit either
  } catch (const CheckpointError& error) {
    if (load.parts.config.checkpoint.load_universal) throw;
    throw CheckpointError(error.what() + other_tags(load.directory, load.tag));
  }
}

// Opens, checks and verifies all that this rank will load. Changes nothing.
void open_and_check(CheckpointLoad& load) {
  naming_other_tags(load, [&] {
    open_model_file(load);
    open_optimizer(load);
    open_module(load);
    open_run(load);
  });
  check_module(load);
  check_optimizer(load);
  if (load.options.verify_first) {
    naming_other_tags(load, [&] {
      verify_module(load);
      verify_optimizer(load);
      load.archives->check_rest();
    });
  }
  if (load.options.check_client_state) load.options.check_client_state(load.client_state);
}

// Compares the saves that the ranks opened. Each rank sees only its own files; no two pipeline stages open
// the same ones.
void require_one_save(const CheckpointLoad& load) {
  const std::vector<std::string> saves = load.parts.groups.all.all_gather_text(load.archives->identity());
  for (size_t rank = 0; rank < saves.size(); ++rank) {
    if (saves[rank] == saves[0]) continue;
    raise<CheckpointError>("the files of ", load.path.parent_path(), " are of two saves: those that rank ",
                           rank, " reads of ", saves[rank], ", those of rank 0 of ", saves[0],
                           "; put back the files of one save, or load another tag");
  }
}

// Drops the gradients of the step under way. Gradients of the old weights mean nothing to the new ones.
void drop_gradients(const CheckpointLoad& load) {
  if (load.parts.optimizer == nullptr) return;
  load.parts.optimizer->zero_grad();
  RunCounters& counters = load.training.counters;
  counters.backwards_since_update = counters.backwards_in_sums = 0;
  counters.dropped_backwards = false;
}

// Loads everything that was checked into the engine. If the small parts, which come first, fail, the old ones
// are restored. If weights or states fail, the engine records that it holds only parts of a checkpoint.
void take_over(const CheckpointLoad& load, const std::function<void()>& restore_run) {
  bool has_changed_weights = false;
  try {
    on_all_ranks(load, [&] { load_run(load); });
    has_changed_weights = true;
    on_all_ranks(load, [&] {
      if (load.parts.optimizer) load.parts.optimizer->state().abandon_step();
      load_module(load);
      drop_gradients(load);
      load_optimizer(load);
      load.archives->check_rest();
    });
    follow_masters(load);
    on_all_ranks(load, [&] { load_rank_state(load); });
  } catch (const std::exception& error) {
    restore_run();
    if (!has_changed_weights) throw;
    load.training.loaded_in_part = error.what();
    log::error("[checkpoint] ", error.what(), ": the engine holds parts of ", load.path.string(), " now");
    throw;
  }
  if (load.optimizer || load.parts.optimizer == nullptr) load.training.loaded_in_part.clear();
}

}  // namespace

LoadResult load_checkpoint(TrainingState& state, const std::string& directory, const LoadOptions& options) {
  const comm::CallSubject subject("in load_checkpoint(), which all ranks must call");
  const c10::NoGradGuard no_grad;
  if (state.background_saver) state.background_saver->wait();
  CheckpointLoad load{.training = state, .parts = state.parts, .directory = directory, .options = options};
  load.tag = agreed_tag(load);
  if (load.tag.empty()) {
    warn_of_no_tag(directory);
    return {};
  }
  on_all_ranks(load, [&] {
    checkpoint::require_tag_inside(load.tag);
    if (load.parts.world.local_rank() == 0) checkpoint::recover_tag(directory, load.tag);
  });
  on_all_ranks(load, [&] { require_tag(directory, load.tag); });
  std::function<void()> restore_run;
  on_all_ranks(load, [&] {
    open_and_check(load);
    restore_run = remember_run(load);
  });
  require_one_save(load);
  take_over(load, restore_run);
  log::info("loaded checkpoint ", load.path.string());
  if (const auto restarts = env::get_int("DEEPSPEED_RESTART_COUNT").value_or(0); restarts > 0) {
    log::info("[checkpoint] restart ", restarts, " goes on from tag ", load.tag, " at step ",
              state.counters.global_steps, " with ", load.parts.world.size(), " ranks");
  }
  return {load.path.string(), std::move(load.client_state)};
}

}  // namespace deepspeed
