// This class does the work behind load_checkpoint() (saving/checkpoints.h): it moves the plain data of
// checkpoint/ into the state of a training. Its functions are in the files checkpoint_load*.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/run_state.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/update/state_slice.h"

namespace deepspeed {

struct StoredTensor {
  std::string name;
  at::Tensor form;                   // on the meta device
  std::function<at::Tensor()> load;  // null: its values come with the optimizer's masters
};

/// A stored module has the model's tensors as a checkpoint has them, read one at a time: at stage 3 the model
/// as a whole may be larger than a rank's memory.
using StoredModule = std::vector<StoredTensor>;

/// Returns what reads one tensor of the file.
inline std::function<at::Tensor()> loader_of(std::shared_ptr<const checkpoint::DeferredArchive> file,
                                             const at::Tensor& tensor) {
  return [file = std::move(file), tensor] { return file->load(tensor); };
}

/// A checkpoint whose files are open and parsed holds all that a load needs to know before it changes the
/// engine.
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

/// A snapshot holds what a load changes beside weights and states, so that it can be put back: counters,
/// schedule, rates, loss scale, random streams and the place in the data.
struct RunSnapshot {
  RunCounters counters;
  AccumulationWindow window;
  std::set<std::string> sparse_names;
  std::optional<Json> schedule;                // nothing: it is not loaded
  std::vector<optim::Hyperparameters> groups;  // [group]
  std::optional<precision::DynamicLossScaler> scaler;
  at::Tensor cpu_rng;
  at::Tensor cuda_rng;                            // undefined where it is not loaded
  std::map<std::string, at::Tensor> rng_streams;  // of CudaRNGStatesTracker
  std::optional<LoaderPosition> loader;
};

class CheckpointLoader {
 public:
  explicit CheckpointLoader(TrainingState& state) : state_(state), parts_(state.parts) {}

  LoadResult load(const std::string& directory, const LoadOptions& options);

 private:
  int rank() const { return parts_.groups.all.rank(); }
  /// Calls comm::on_all_ranks() over all ranks of the training.
  void on_all_ranks(const std::function<void()>& work) {
    comm::on_all_ranks<CheckpointError>(parts_.groups.all, "loading", work);
  }

  // checkpoint_load.cpp
  std::string chosen_tag(const std::string& directory, const LoadOptions& options) const;
  /// Returns the tag that all ranks chose; "" where they found none.
  std::string agreed_tag(const std::string& directory, const LoadOptions& options);
  bool loads_optimizer(const LoadOptions& options) const;
  OpenedCheckpoint open(const std::string& directory, const std::string& tag,
                        const LoadOptions& options) const;
  /// Throws CheckpointError where ranks have opened files of different saves.
  void require_one_save(const OpenedCheckpoint& opened) const;
  /// Throws where the checkpoint does not fit the engine.
  void check_fit(const OpenedCheckpoint& opened, const LoadOptions& options) const;
  /// Reads once what the load will read. Throws CheckpointError where it is damaged.
  void verify(const OpenedCheckpoint& opened) const;
  /// Takes all that was checked into the engine. Where the small things fail, which come first, they are put
  /// back; where weights and states do, the engine says from then on that it holds parts.
  void take_over(const OpenedCheckpoint& opened, const RunSnapshot& before, const LoadOptions& options);
  void load_weights_and_states(const OpenedCheckpoint& opened, const LoadOptions& options);
  void follow_masters(const OpenedCheckpoint& opened);
  /// Says whether the files have weights of this optimizer in another dtype than the engine.
  bool is_of_other_precision(const OpenedCheckpoint& opened) const;

  // checkpoint_load_run.cpp
  void open_run(const std::string& directory, const std::string& tag, OpenedCheckpoint& opened) const;
  bool loads_schedule(const OpenedCheckpoint& opened, const LoadOptions& options) const;
  RunSnapshot run_snapshot(const OpenedCheckpoint& opened, const LoadOptions& options) const;
  void load_run(const OpenedCheckpoint& opened, const LoadOptions& options);
  void load_sparse_names(const OpenedCheckpoint& opened, bool strict);
  void load_scaler(const checkpoint::LossScalerStates& states);
  void put_back(const RunSnapshot& before);

  // checkpoint_load_module.cpp
  void open_module(const std::string& directory, const std::string& tag, const LoadOptions& options,
                   OpenedCheckpoint& opened) const;
  StoredModule layers_module(const std::string& directory, const std::string& tag,
                             const OpenedCheckpoint& opened,
                             const std::unordered_set<std::string>& in_masters) const;
  std::unordered_set<std::string> weights_in_masters(const checkpoint::OptimizerFiles& source) const;
  StoredModule whole_module(const std::string& directory, const std::string& tag,
                            const OpenedCheckpoint& opened, bool has_masters) const;
  /// Returns the model's own tensors by the names under which files have them.
  std::unordered_map<std::string, at::Tensor> own_tensors() const;
  /// Throws CheckpointError where names, with `strict`, or sizes do not fit.
  void check_module(const StoredModule& module, bool strict) const;
  void load_module(const StoredModule& module);

  // checkpoint_load_optimizer.cpp
  /// Which place's files this rank begins with: its own, where there are as many as here.
  int first_mp_rank(const std::string& directory, const std::string& tag) const;
  void require_kind(const OpenedCheckpoint& opened, const std::string& directory,
                    const std::string& tag) const;
  checkpoint::OptimizerFiles open_optimizer(const std::string& directory, const std::string& tag,
                                            const OpenedCheckpoint& opened) const;
  checkpoint::OptimizerFiles open_stages(const std::string& directory, const std::string& tag,
                                         const OpenedCheckpoint& opened,
                                         const std::vector<checkpoint::NamedShapes>& own_shapes) const;
  checkpoint::OptimizerFiles open_unnamed(const std::string& directory, const std::string& tag,
                                          const OpenedCheckpoint& opened,
                                          const std::vector<checkpoint::NamedShapes>& own_shapes) const;
  /// Throws CheckpointError, naming the way out, where the files have other groups or states than the
  /// optimizer.
  void check_optimizer(const OpenedCheckpoint& opened) const;
  void check_states(const checkpoint::OptimizerFiles& source, size_t group) const;
  void verify_optimizer(const OpenedCheckpoint& opened) const;
  /// Says whether masters come from the files; else they are the model's weights, where the files have these.
  bool wants_master(const OpenedCheckpoint& opened) const;
  void load_optimizer(const OpenedCheckpoint& opened);
  /// Loads what a rank alone has, after weights and states, or says in the log that it begins anew.
  void load_rank_state(const OpenedCheckpoint& opened);
  /// Loads masters and states of one slice. Returns false where the files have no master of it.
  bool load_slice(const checkpoint::OptimizerFiles& source, size_t group, const zero::StateSlice& slice,
                  bool wants_master) const;
  /// Returns the group's hyperparameters with those of the file. Throws CheckpointError where one is of
  /// another kind.
  optim::Hyperparameters loaded_options(size_t group, const Json& options) const;

  TrainingState& state_;
  EngineParts& parts_;
};

}  // namespace deepspeed
