// This class does the work behind save_checkpoint() and load_checkpoint() (saving/checkpoints.h): it moves
// the plain data of checkpoint/ in and out of the state of a training.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/archive/deferred_tensors.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/engine/saving/checkpoint_options.h"
#include "deepspeed/engine/saving/opened_checkpoint.h"
#include "deepspeed/engine/saving/run_snapshot.h"
#include "deepspeed/engine/saving/save_job.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/zero/update/state_slice.h"

namespace deepspeed {

class CheckpointIo {
 public:
  explicit CheckpointIo(TrainingState& state) : state_(state), parts_(state.parts) {}

  void save(const std::string& directory, const SaveOptions& options);
  LoadResult load(const std::string& directory, const LoadOptions& options);
  void save_16bit_model(const std::string& directory, const std::string& file_name, bool exclude_frozen);

 private:
  int rank() const { return parts_.groups.all.rank(); }
  bool uses_zero() const { return parts_.config.zero_optimization.stage > 0; }
  /// Calls comm::on_all_ranks() over all ranks of the training.
  void on_all_ranks(const char* what, const std::function<void()>& work);
  void wait_for_save();
  void check_tag(const std::string& tag) const;

  // checkpoint_checks.cpp
  /// Throws UsageError where a save would lose something: gradients that no file holds, or what is not a
  /// checkpoint in the tag's place. Nothing is written then.
  void check_save(const SaveJob& job, const SaveOptions& options) const;
  bool has_waiting_gradients() const;
  [[noreturn]] void refuse_waiting_gradients() const;
  void require_place(const SaveJob& job) const;

  // checkpoint_save.cpp
  SaveJob make_job(const std::string& directory, const SaveOptions& options) const;
  void begin(SaveJob& job, const SaveOptions& options);
  /// Collects what this rank will write, sharing the memory of the engine's tensors.
  void collect(SaveJob& job, const SaveOptions& options) const;
  void run(SaveJob job);
  std::vector<std::pair<std::string, std::string>> shared_params() const;
  checkpoint::ModelStates model_states(const SaveOptions& options,
                                       checkpoint::DeferredTensors& deferred) const;
  checkpoint::ZeroOptimizerStates zero_states(checkpoint::DeferredTensors& deferred) const;
  void add_sub_groups(size_t group, checkpoint::DeferredTensors& deferred,
                      std::vector<checkpoint::PartitionStates>& groups) const;
  void gather_module(NamedTensors& tensors) const;
  checkpoint::PlainOptimizerStates plain_states() const;
  checkpoint::LossScalerStates scaler_states() const;

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

  // checkpoint_load_stages.cpp
  checkpoint::OptimizerFiles open_stages(const std::string& directory, const std::string& tag,
                                         const OpenedCheckpoint& opened,
                                         const std::vector<checkpoint::NamedShapes>& own_shapes) const;
  checkpoint::OptimizerFiles open_unnamed(const std::string& directory, const std::string& tag,
                                          const OpenedCheckpoint& opened,
                                          const std::vector<checkpoint::NamedShapes>& own_shapes) const;

  // checkpoint_load_optimizer.cpp
  /// Which place's files this rank begins with: its own, where there are as many as here.
  int first_mp_rank(const std::string& directory, const std::string& tag) const;
  void require_kind(const OpenedCheckpoint& opened, const std::string& directory,
                    const std::string& tag) const;
  checkpoint::OptimizerFiles open_optimizer(const std::string& directory, const std::string& tag,
                                            const OpenedCheckpoint& opened) const;
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
