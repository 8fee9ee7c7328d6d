// Reads a checkpoint folder of stages 0 to 3 by parameter, to make a universal checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/sources/fp32_source.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"

namespace deepspeed::checkpoint {

/// Reads one tag's folder. Not thread-safe.
class UniversalSource {
 public:
  struct Parameter {
    std::string name;
    std::vector<int64_t> sizes;
    size_t group = 0;
  };

  /// Reads names and shapes. Throws CheckpointError if a file is missing (naming it) or files do not fit
  /// together. Throws NotSupportedError if ranks divide the layers. `options` are for its TagArchives.
  explicit UniversalSource(const std::filesystem::path& tag_folder,
                           const TagArchives::Options& options = {true, false});

  /// Checks files that are in no manifest against their own checksums. Throws CheckpointError.
  void verify() const { archives_->verify(); }
  /// Reads another file of the tag.
  Value read(const std::filesystem::path& file) const { return archives_->read(file); }

  /// Returns the trained parameters of all groups.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Lists a parameter's states with their dtypes: "fp32" first, then the optimizer's.
  std::vector<std::pair<std::string, at::ScalarType>> states(const Parameter& parameter) const;
  int64_t step(const Parameter& parameter) const { return optimizer_->groups()[parameter.group].step; }
  /// Loads a whole state in the parameter's shape.
  at::Tensor load(const Parameter& parameter, const std::string& state) const;

  int64_t global_steps() const { return stages_.front().states.global_steps; }
  /// Returns the number of ranks that saved; 0 if the files do not tell.
  int64_t num_ranks() const { return archives_->num_ranks(); }

  /// Returns the number of model files: one for each pipeline stage, 1 without pipelines.
  size_t num_models() const { return stages_.size(); }
  /// Returns the content of the model file of a pipeline stage, with `universal_checkpoint_info`. It leaves
  /// out the optimizer's states, which ZeRO stage 0 stores there, and has whole weights instead of ZeRO stage
  /// 3's shards. Large tensors are meta tensors, whose data load_of_model() reads.
  Dict model_file(size_t stage = 0) const;
  at::Tensor load_of_model(const at::Tensor& deferred, size_t stage = 0) const;
  /// Returns the content of zero/optimizer_state.pt.
  Dict optimizer_state() const;

 private:
  at::ScalarType master_dtype(const Parameter& parameter) const;
  /// Holds the model file of a pipeline stage, or of the whole model.
  struct Stage {
    std::shared_ptr<DeferredArchive> file;
    ModelStates states;
  };

  at::Tensor weight(const std::string& name) const;
  std::vector<NamedShapes> params_of_plain_optimizer(const Stage& stage) const;
  std::vector<NamedShapes> open_partitions(size_t stage);
  std::vector<NamedShapes> open_plain_optimizer(const Stage& stage);
  void join(OptimizerFiles files);
  void add_groups(const std::vector<NamedShapes>& groups);
  Dict whole_module(const Dict& module) const;
  Dict common_of_partitions() const;
  Dict common_of_plain_optimizer() const;

  std::filesystem::path folder_;
  std::shared_ptr<const TagArchives> archives_;
  std::vector<Stage> stages_;
  std::unordered_map<std::string, at::Tensor> module_;  // empty for pipelines
  std::optional<OptimizerFiles> optimizer_;
  std::vector<Parameter> parameters_;
  std::optional<Fp32Source> whole_;  // finds the module's weights at stage 3 and in pipelines
  mutable std::unordered_map<const void*, std::pair<at::Tensor, at::Tensor>>
      of_whole_;  // by tensor of whole_module(): the tensor, and its weight in whole_
};

}  // namespace deepspeed::checkpoint
