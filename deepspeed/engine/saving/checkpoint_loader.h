// Implements load_checkpoint() (saving/checkpoints.h): moves the plain data of checkpoint/ into a training's
// state. The functions are in the files checkpoint_load*.cpp.
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
  std::function<at::Tensor()> load;  // null: values come with the optimizer's masters
};

/// Holds the model's tensors as stored, to be read one at a time. At stage 3 the whole model may exceed a
/// rank's memory.
using StoredModule = std::vector<StoredTensor>;

/// Returns a function that reads one tensor of the file.
inline std::function<at::Tensor()> loader_of(std::shared_ptr<const checkpoint::DeferredArchive> file,
                                             const at::Tensor& tensor) {
  return [file = std::move(file), tensor] { return file->load(tensor); };
}

/// Holds an opened and parsed checkpoint: all that a load must know before it changes the engine.
struct OpenedCheckpoint {
  std::filesystem::path path;  // of the model file
  bool is_sharded = false;     // written at stage 3
  int mp_rank = 0;             // place of that file among the ranks that divided the model
  std::shared_ptr<const checkpoint::TagArchives> archives;
  std::shared_ptr<checkpoint::DeferredArchive> file;  // the model file
  checkpoint::ModelStates states;
  StoredModule module;
  std::optional<checkpoint::OptimizerFiles> optimizer;  // nothing: not requested
  std::optional<checkpoint::RunState> run;              // nothing: written by DeepSpeed itself
  bool has_own_run = false;                             // run is this rank's; false: it is rank 0's
  checkpoint::Dict client_state;
};

/// Holds what a load changes besides weights and states, so that it can be restored.
struct RunSnapshot {
  RunCounters counters;
  AccumulationWindow window;
  std::set<std::string> sparse_names;
  std::optional<Json> schedule;                // nothing: not loaded
  std::vector<optim::Hyperparameters> groups;  // [group]
  std::optional<precision::DynamicLossScaler> scaler;
  at::Tensor cpu_rng;
  at::Tensor cuda_rng;                            // undefined if it is not loaded
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
  /// Returns the tag that all ranks chose; "" if they found none.
  std::string agreed_tag(const std::string& directory, const LoadOptions& options);
  bool loads_optimizer(const LoadOptions& options) const;
  OpenedCheckpoint open(const std::string& directory, const std::string& tag,
                        const LoadOptions& options) const;
  /// Throws CheckpointError if ranks have opened files of different saves.
  void require_one_save(const OpenedCheckpoint& opened) const;
  /// Throws if the checkpoint does not fit the engine.
  void check_fit(const OpenedCheckpoint& opened, const LoadOptions& options) const;
  /// Reads once what the load will read. Throws CheckpointError if a file is damaged.
  void verify(const OpenedCheckpoint& opened) const;
  /// Loads everything that was checked into the engine. If the small parts, which come first, fail, the old
  /// ones are restored. If weights or states fail, the engine records that it holds only parts of a
  /// checkpoint.
  void take_over(const OpenedCheckpoint& opened, const RunSnapshot& before, const LoadOptions& options);
  void load_weights_and_states(const OpenedCheckpoint& opened, const LoadOptions& options);
  void follow_masters(const OpenedCheckpoint& opened);
  /// Returns whether the files have this optimizer's weights in another dtype than the engine.
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
  /// Returns the model's own tensors by their names in the files.
  std::unordered_map<std::string, at::Tensor> own_tensors() const;
  /// Throws CheckpointError if sizes or, with `strict`, names do not fit.
  void check_module(const StoredModule& module, bool strict) const;
  void load_module(const StoredModule& module);

  // checkpoint_load_optimizer.cpp
  /// Returns the place whose files this rank opens first: its own, if the number of places is equal.
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
  /// Throws CheckpointError if the files have other groups or states than the optimizer.
  void check_optimizer(const OpenedCheckpoint& opened) const;
  void check_states(const checkpoint::OptimizerFiles& source, size_t group) const;
  void verify_optimizer(const OpenedCheckpoint& opened) const;
  /// Returns whether masters come from the files; otherwise they are set from the model's weights.
  bool wants_master(const OpenedCheckpoint& opened) const;
  void load_optimizer(const OpenedCheckpoint& opened);
  /// Loads the state that only this rank has, after weights and states. Logs if the checkpoint lacks it, so
  /// that it starts from zero.
  void load_rank_state(const OpenedCheckpoint& opened);
  /// Loads masters and states of one slice. Returns false if the files have no master for it.
  bool load_slice(const checkpoint::OptimizerFiles& source, size_t group, const zero::StateSlice& slice,
                  bool wants_master) const;
  /// Returns the group's hyperparameters, replaced by those of the file. Throws CheckpointError if one has
  /// another type.
  optim::Hyperparameters loaded_options(size_t group, const Json& options) const;

  TrainingState& state_;
  EngineParts& parts_;
};

}  // namespace deepspeed
