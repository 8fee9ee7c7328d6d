// Gives access to the fp32 weights of a checkpoint folder of stages 0 to 3 without loading them at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"

namespace deepspeed::checkpoint {

class Fp32Source {
 public:
  struct Options {
    bool exclude_frozen_parameters = false;
    /// Selects the model-parallel rank whose weights are read, if layers are split over ranks.
    std::optional<int> mp_rank = {};
  };

  /// Reads names and shapes. Throws CheckpointError if a file is missing (naming it) or shapes and counts do
  /// not fit. Throws UsageError if layers are split over ranks and no rank is selected. `archives` opens the
  /// files of the tag's folder. If it is null, the source makes its own.
  Fp32Source(const std::filesystem::path& dir, const std::string& tag, const Options& options,
             std::shared_ptr<const TagArchives> archives = nullptr);

  /// Returns the weights in DeepSpeed's order, as fp32 on the meta device. That is: buffers, frozen
  /// parameters, trained parameters, then aliases of shared parameters, which share their tensor. At stage 0
  /// the order is the module's own.
  const NamedTensors& weights() const { return weights_; }
  /// Returns the fp32 data of a weight on the CPU, in the shape of `weight`. `weight` is a tensor of
  /// weights() or a view of all its elements.
  at::Tensor load(const at::Tensor& weight) const;
  /// Passes a weight's fp32 data to `sink` in order, in pieces of a few MiB.
  void stream(const at::Tensor& weight, const PieceSink& sink) const;
  /// Checks the rest of records that were partly read, like TagArchives::check_rest().
  void check_rest() const { archives_->check_rest(); }

 private:
  /// Describes a run of a weight's elements: `elements` of `tensor`, which the file `archive` holds.
  struct Part {
    const DeferredArchive* archive = nullptr;
    at::Tensor tensor;
    Interval elements;
  };
  using Parts = std::vector<Part>;

  using Archives = std::vector<std::shared_ptr<DeferredArchive>>;

  /// Holds the files of one model-parallel rank (a pipeline stage), or of the whole model.
  struct Stage {
    int mp_rank = 0;
    std::shared_ptr<DeferredArchive> model;
    ModuleStates states;
    Archives files;        // the optimizer file of each data-parallel rank
    Archives model_files;  // stage 3: each rank's model file, for shards of frozen parameters
    std::vector<ZeroOptimizerStates> ranks;
  };
  /// Holds a tensor of the module and the file that contains it.
  struct ModuleEntry {
    std::string name;
    at::Tensor tensor;
    const DeferredArchive* archive = nullptr;
  };

  const Parts& parts_of(const at::Tensor& weight) const;
  void begin_reading(const DeferredArchive& archive) const;
  void open_module(const std::filesystem::path& dir, const std::string& tag);
  void require_same_shapes(const std::filesystem::path& dir, const std::string& tag,
                           const Stage& stage) const;
  void open_partitions(const std::filesystem::path& dir, const std::string& tag, Stage& stage) const;
  void add_buffers(const Stage& stage);
  void add_stage(const std::filesystem::path& dir, const std::string& tag, bool exclude_frozen_parameters,
                 Stage& stage);
  void add(const std::string& name, const std::vector<int64_t>& sizes, Parts parts);
  void add_of_file(const std::string& name, const at::Tensor& tensor, const DeferredArchive& archive);
  void add_alias(const std::string& name, const std::string& of);
  void add_module();
  void add_frozen(const Stage& stage);
  void add_frozen_of_module(const Stage& stage);
  void add_sharded_frozen(const std::filesystem::path& dir, const std::string& tag, Stage& stage);
  void add_group(const Stage& stage, size_t group);
  void add_shards(const Stage& stage);
  static Parts parts_of_group(const Stage& stage, size_t group, const Interval& elements);

  std::shared_ptr<const TagArchives> archives_;
  std::vector<Stage> stages_;
  Archives layer_files_;             // of a pipeline
  std::vector<ModuleEntry> module_;  // of all stages
  NamedTensors weights_;
  std::unordered_map<std::string, size_t> positions_;  // index in weights_
  std::unordered_map<const void*, Parts> parts_;       // by storage of a weight
  mutable const DeferredArchive* last_read_ = nullptr;
};

}  // namespace deepspeed::checkpoint
