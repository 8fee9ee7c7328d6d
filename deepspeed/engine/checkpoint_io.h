// Saves and restores an engine. The content of the files is plain data of checkpoint/; this class moves it in
// and out of the engine's parts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>

#include "deepspeed/checkpoint/deferred_archive.h"
#include "deepspeed/checkpoint/deferred_tensors.h"
#include "deepspeed/checkpoint/fp32_source.h"
#include "deepspeed/checkpoint/manifest.h"
#include "deepspeed/checkpoint/model_states.h"
#include "deepspeed/checkpoint/optimizer_files.h"
#include "deepspeed/checkpoint/optimizer_states.h"
#include "deepspeed/checkpoint/plain_optimizer.h"
#include "deepspeed/engine/checkpoint_options.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/save_job.h"
#include "deepspeed/engine/stored_module.h"

namespace deepspeed {

class CheckpointIo {
 public:
  explicit CheckpointIo(Engine& engine) : engine_(engine) {}

  void save(const std::string& directory, const SaveOptions& options);
  LoadResult load(const std::string& directory, const LoadOptions& options);
  void save_16bit_model(const std::string& directory, const std::string& file_name, bool exclude_frozen);

 private:
  /// As the function of that name, over the engine's ranks.
  void on_all_ranks(const char* what, const std::function<void()>& work);
  void check_tag(const std::string& tag) const;

  // checkpoint_checks.cpp
  /// Throws UsageError where a save would lose something: gradients that no file holds, or what is not a
  /// checkpoint in the tag's place. Nothing is written then.
  void check_save(const SaveJob& job) const;
  void require_no_gradients() const;
  void require_place(const SaveJob& job) const;

  // checkpoint_save.cpp
  SaveJob make_job(const std::string& directory, const SaveOptions& options) const;
  void begin(SaveJob& job, const SaveOptions& options);
  /// What this rank will write, sharing the memory of the engine's tensors.
  void collect(SaveJob& job, const SaveOptions& options) const;
  void run(SaveJob job);
  checkpoint::NamedTensors module_tensors(bool exclude_frozen) const;
  checkpoint::ModelStates model_states(const SaveOptions& options,
                                       checkpoint::DeferredTensors& deferred) const;
  checkpoint::ZeroOptimizerStates zero_states(checkpoint::DeferredTensors& deferred) const;
  void add_sub_groups(size_t group, checkpoint::DeferredTensors& deferred,
                      std::vector<checkpoint::PartitionStates>& groups) const;
  void gather_module(checkpoint::NamedTensors& tensors) const;
  checkpoint::PlainOptimizerStates plain_states() const;
  checkpoint::LossScalerStates scaler_states() const;

  // checkpoint_load.cpp
  std::string chosen_tag(const std::string& directory, const LoadOptions& options) const;
  bool loads_optimizer(const LoadOptions& options) const;
  std::unordered_set<std::string> weights_in_masters(const checkpoint::OptimizerFiles& source) const;
  StoredModule whole_module(const std::string& directory, const std::string& tag,
                            const checkpoint::ModuleStates& states,
                            const std::shared_ptr<checkpoint::DeferredArchive>& file, bool has_masters) const;
  /// Where it throws CheckpointError because names or sizes do not fit, nothing has changed.
  void load_module(const StoredModule& module, bool strict);
  void load_files(const std::string& directory, const std::string& tag, const LoadOptions& options,
                  LoadResult& result);
  checkpoint::OptimizerFiles open_optimizer(const std::string& directory, const std::string& tag,
                                            const checkpoint::Manifest& manifest,
                                            const std::shared_ptr<checkpoint::DeferredArchive>& model_file,
                                            const checkpoint::ModelStates& states) const;
  /// reads_masters: also where the engine's own masters are the model's weights.
  void load_optimizer(const checkpoint::OptimizerFiles& source, bool reads_masters);
  /// Masters and states of one slice; false: the files have no master of it.
  bool load_slice(const checkpoint::OptimizerFiles& source, size_t group, const zero::StateSlice& slice,
                  bool wants_master) const;
  void load_scaler(const checkpoint::LossScalerStates& states);
  void load_group_options(size_t group, const Json& options);
  void load_run_state(const std::string& directory, const std::string& tag,
                      const checkpoint::Manifest& manifest);

  Engine& engine_;
};

}  // namespace deepspeed
