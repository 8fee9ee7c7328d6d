// Loads a checkpoint. Files are opened, compared with the engine and verified on all ranks before any rank
// changes anything.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <unordered_set>

#include <c10/core/GradMode.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/checkpoint/tag/tag_name.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoint_loader.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
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
      "; load_checkpoint() takes the one that is given to it as `tag`, else that which `latest` names");
}

// Without the counters a run would restart at step 0, with the initial learning rates.
void require_counters(const fs::path& file, const checkpoint::Dict& states) {
  for (const char* key : {"global_steps", "skipped_steps"}) {
    const checkpoint::Value* value = states.find(key);
    if (value != nullptr && !value->is_none()) continue;
    raise<CheckpointError>("the file ", file, " lacks '", key,
                           "', which says how far the training was; load_module_only = true loads the "
                           "weights alone");
  }
}

void warn_of_no_tag(const std::string& directory) {
  const std::vector<std::string> complete = checkpoint::find_complete_tags(directory);
  log::warning("[checkpoint] there is no `latest` in ", directory,
               ": nothing is loaded; pass a tag to choose one",
               complete.empty() ? "" : message(": the newest complete one is '", complete.front(), "'"));
}

}  // namespace

std::string CheckpointLoader::chosen_tag(const std::string& directory, const LoadOptions& options) const {
  if (!options.tag.empty()) return options.tag;
  if (!parts_.config.checkpoint.load_universal) return checkpoint::read_latest(directory).value_or("");
  if (const auto tag = checkpoint::read_latest_universal(directory)) return *tag;
  raise<CheckpointError>("there is no ", checkpoint::latest_universal_path(directory),
                         ", which checkpoint.load_universal needs; ds_to_universal makes a universal "
                         "checkpoint of another");
}

std::string CheckpointLoader::agreed_tag(const std::string& directory, const LoadOptions& options) {
  std::string tag;
  on_all_ranks([&] { tag = chosen_tag(directory, options); });
  const std::vector<std::string> tags = parts_.groups.all.all_gather_text(tag);
  for (size_t rank = 0; rank < tags.size(); ++rank) {
    if (tags[rank] == tags[0]) continue;
    raise<CheckpointError>("the tag to load from ", directory, " is '", tags[rank], "' on rank ", rank,
                           ", and '", tags[0],
                           "' on rank 0, expected the same; is the folder one that all ranks see?");
  }
  return tag;
}

LoadResult CheckpointLoader::load(const std::string& directory, const LoadOptions& options) {
  const c10::NoGradGuard no_grad;
  if (state_.background_saver) state_.background_saver->wait();
  const std::string tag = agreed_tag(directory, options);
  if (tag.empty()) {
    warn_of_no_tag(directory);
    return {};
  }
  on_all_ranks([&] {
    checkpoint::require_tag_inside(tag);
    if (parts_.world.local_rank() == 0) checkpoint::recover_tag(directory, tag);
  });
  on_all_ranks([&] { require_tag(directory, tag); });
  const auto naming_others = [&](const std::function<void()>& read) {
    try {
      read();
    } catch (const checkpoint::MisfitError&) {
      throw;  // another tag of this training would not fit either
    } catch (const CheckpointError& error) {
      if (parts_.config.checkpoint.load_universal) throw;
      throw CheckpointError(error.what() + other_tags(directory, tag));
    }
  };
  std::optional<OpenedCheckpoint> opened;
  RunSnapshot before;
  on_all_ranks([&] {
    naming_others([&] { opened.emplace(open(directory, tag, options)); });
    check_fit(*opened, options);
    if (options.verify_first) naming_others([&] { verify(*opened); });
    if (options.check_client_state) options.check_client_state(opened->client_state);
    before = run_snapshot(*opened, options);
  });
  require_one_save(*opened);
  take_over(*opened, before, options);
  log::info("loaded checkpoint ", opened->path.string());
  if (const auto restarts = env::get_int("DEEPSPEED_RESTART_COUNT").value_or(0); restarts > 0) {
    log::info("[checkpoint] restart ", restarts, " goes on from tag ", tag, " at step ",
              state_.counters.global_steps, " with ", parts_.world.size(), " ranks");
  }
  return {opened->path.string(), std::move(opened->client_state)};
}

bool CheckpointLoader::loads_optimizer(const LoadOptions& options) const {
  return parts_.optimizer != nullptr && options.load_optimizer_states && !options.load_module_only;
}

OpenedCheckpoint CheckpointLoader::open(const std::string& directory, const std::string& tag,
                                        const LoadOptions& options) const {
  OpenedCheckpoint opened;
  opened.mp_rank = first_mp_rank(directory, tag);
  const std::vector<fs::path> sharded = checkpoint::find_sharded_model_states(directory, tag, opened.mp_rank);
  opened.is_sharded = !sharded.empty();
  opened.path =
      opened.is_sharded ? sharded.front() : checkpoint::model_states_path(directory, tag, opened.mp_rank);
  const fs::path folder = opened.path.parent_path();
  opened.archives = std::make_shared<const checkpoint::TagArchives>(
      folder, checkpoint::TagArchives::Options{.looks_around = rank() == 0});
  // Files that this load does not read may be missing.
  const auto is_needed = [&](const std::string& name) {
    if (checkpoint::is_optimizer_file(name)) return opened.is_sharded || loads_optimizer(options);
    return !options.load_module_only || !checkpoint::is_rng_file(name);
  };
  if (const auto damage = checkpoint::find_damage(folder, opened.archives->manifest(), is_needed)) {
    raise<CheckpointError>(*damage, opened.is_sharded && !loads_optimizer(options)
                                        ? "; the checkpoint is of stage 3, whose weights are in these files"
                                        : "");
  }
  if (!fs::exists(opened.path)) raise<CheckpointError>("the file ", opened.path, " is missing");
  opened.file = opened.archives->open(opened.path);
  opened.states = checkpoint::parse_model_states(opened.file->value());
  if (!options.load_module_only) require_counters(opened.path, opened.file->value().as_dict());
  require_kind(opened, directory, tag);
  opened.client_state = opened.file->load(checkpoint::Value(opened.states.client_state)).as_dict();
  if (loads_optimizer(options)) opened.optimizer = open_optimizer(directory, tag, opened);
  open_module(directory, tag, options, opened);
  if (!options.load_module_only) open_run(directory, tag, opened);
  return opened;
}

int CheckpointLoader::first_mp_rank(const std::string& directory, const std::string& tag) const {
  const size_t num_places = checkpoint::find_mp_ranks(directory, tag).size();
  const ParallelGroups& groups = parts_.groups;
  if (num_places == size_t(groups.model_size())) return groups.model_rank();
  // The checkpoint has another number of stages. The first stage's file has what all stages of this slice
  // share.
  for (int place = 0; place < int(num_places); ++place) {
    if (groups.slice_of(place, int(num_places)) == groups.slice()) return place;
  }
  return 0;
}

void CheckpointLoader::require_kind(const OpenedCheckpoint& opened, const std::string& directory,
                                    const std::string& tag) const {
  const bool is_pipeline = !parts_.model.stored_layers.empty();
  if (is_pipeline != opened.states.states.has_module) {
    if (is_pipeline) return;
    const size_t num_places = checkpoint::find_mp_ranks(directory, tag).size();
    if (int(num_places) == parts_.groups.model_size()) return;
    raise<checkpoint::MisfitError>(opened.path.parent_path(), " is a checkpoint of ", num_places,
                                   " model-parallel ranks, the engine has ", parts_.groups.model_size(),
                                   "; load it with as many");
  }
  raise<checkpoint::MisfitError>(opened.path.parent_path(),
                                 is_pipeline
                                     ? " is no checkpoint of a pipeline: it has the model as a whole; "
                                       "load it into an engine of the whole model"
                                     : " is a checkpoint of a pipeline: load it into a PipelineModule, or "
                                       "make weights of it by zero_to_fp32");
}

/// Compares the saves that the ranks opened. Each rank sees only its own files; no two pipeline stages open
/// the same ones.
void CheckpointLoader::require_one_save(const OpenedCheckpoint& opened) const {
  const std::vector<std::string> saves = parts_.groups.all.all_gather_text(opened.archives->identity());
  for (size_t rank = 0; rank < saves.size(); ++rank) {
    if (saves[rank] == saves[0]) continue;
    raise<CheckpointError>("the files of ", opened.path.parent_path(), " are of two saves: those that rank ",
                           rank, " reads of ", saves[rank], ", those of rank 0 of ", saves[0],
                           "; put back the files of one save, or load another tag");
  }
}

void CheckpointLoader::check_fit(const OpenedCheckpoint& opened, const LoadOptions& options) const {
  for (const NamedTensor& param : parts_.model.parameters) zero::check_settable(param.tensor);
  if (!options.custom_load_fn) check_module(opened.module, options.load_module_strict);
  if (opened.optimizer) check_optimizer(opened);
}

void CheckpointLoader::verify(const OpenedCheckpoint& opened) const {
  for (const StoredTensor& stored : opened.module) {
    if (stored.load) stored.load();
  }
  if (opened.optimizer) verify_optimizer(opened);
  opened.archives->check_rest();
}

void CheckpointLoader::take_over(const OpenedCheckpoint& opened, const RunSnapshot& before,
                                 const LoadOptions& options) {
  try {
    if (!options.load_module_only) on_all_ranks([&] { load_run(opened, options); });
  } catch (...) {
    put_back(before);
    throw;
  }
  try {
    on_all_ranks([&] {
      load_weights_and_states(opened, options);
      opened.archives->check_rest();
    });
    if (opened.optimizer) follow_masters(opened);
    if (opened.optimizer) on_all_ranks([&] { load_rank_state(opened); });
  } catch (const std::exception& error) {
    put_back(before);
    state_.loaded_in_part = error.what();
    log::error("[checkpoint] ", error.what(), ": the engine holds parts of ", opened.path.string(), " now");
    throw;
  }
  if (opened.optimizer || parts_.optimizer == nullptr) state_.loaded_in_part.clear();
}

void CheckpointLoader::load_weights_and_states(const OpenedCheckpoint& opened, const LoadOptions& options) {
  zero::ZeroOptimizer* optimizer = parts_.optimizer.get();
  if (optimizer != nullptr) optimizer->state().abandon_step();
  if (options.custom_load_fn) {
    NamedTensors tensors;
    for (const StoredTensor& stored : opened.module) tensors.emplace_back(stored.name, stored.load());
    options.custom_load_fn(tensors);
  } else {
    load_module(opened.module);
  }
  if (optimizer == nullptr) return;
  optimizer->zero_grad();
  state_.counters.backwards_since_update = state_.counters.backwards_in_sums = 0;
  state_.counters.dropped_backwards = false;
  if (opened.optimizer) load_optimizer(opened);
  if (!opened.optimizer || !wants_master(opened)) optimizer->state().restore_masters_from_model();
}

// Masters may come from another precision or from stage 3, whose files hold nothing else; the model's weights
// are then set from them. At stage 3 in fp32 the masters are the shards. Split masters exist only on their
// own rank. In fp32, weights that this rank has masters of were loaded with the masters, which may be in
// other memory.
void CheckpointLoader::follow_masters(const OpenedCheckpoint& opened) {
  zero::ZeroOptimizer& optimizer = *parts_.optimizer;
  const bool come_from_elsewhere = parts_.config.checkpoint.load_universal || is_of_other_precision(opened);
  const bool are_weights = optimizer.store().dtype() == at::kFloat;
  if (opened.is_sharded || come_from_elsewhere || parts_.pool || optimizer.state().has_split_masters() ||
      are_weights)
    optimizer.state().publish_masters();
}

bool CheckpointLoader::is_of_other_precision(const OpenedCheckpoint& opened) const {
  const at::ScalarType own = parts_.optimizer->store().dtype();
  std::unordered_set<std::string> trained;
  for (const zero::StoredGroup& group : parts_.optimizer->store().groups()) {
    for (const NamedTensor& param : group.params) trained.insert(param.name);
  }
  return std::ranges::any_of(opened.module, [&](const StoredTensor& stored) {
    return trained.contains(stored.name) && stored.form.scalar_type() != own;
  });
}

LoadResult load_checkpoint(TrainingState& state, const std::string& directory, const LoadOptions& options) {
  const comm::CallSubject subject("in load_checkpoint(), which all ranks must call");
  return CheckpointLoader(state).load(directory, options);
}

}  // namespace deepspeed
