// A checkpoint's optimizer is read by parameter: files of any stage and any number of ranks look alike, and
// each reader takes the intervals that it needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/parameter_numbers.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/sources/tag_archives.h"

namespace deepspeed::checkpoint {

/// Names the fp32 master weights among the states of a parameter.
inline constexpr const char* kMasterState = "fp32";
/// Names the steps that were taken, in a universal checkpoint a file beside the states.
inline constexpr const char* kStepState = "step";

class OptimizerFiles {
 public:
  struct Group {
    int64_t step = 0;
    Json options = Json::object();                               // hyperparameters
    std::vector<std::pair<std::string, at::ScalarType>> states;  // "exp_avg", ...: without the masters
    ParameterNumbers numbers;
  };

  /// Opens the partitions of stages 1 to 3. `shapes` (param_shapes of the model file, which has to have them)
  /// say where the parameters of the place `mp_rank` lie: the param_slice_mappings of DeepSpeed's own files
  /// are wrong with round_robin_gradients. Those of its BF16_Optimizer are right, and are taken where there
  /// are no shapes, as in its pipelines at stage 0. Throws CheckpointError where a rank's file is missing or
  /// files do not fit together.
  static OptimizerFiles of_partitions(const std::filesystem::path& dir, const std::string& tag,
                                      const TagArchives& archives,
                                      const std::optional<std::vector<NamedShapes>>& shapes, int mp_rank = 0);
  /// Reads the optimizer of stage 0, inside of the model file. `params`: for each group, in its order, the
  /// parameters that need a gradient, with their shapes. Throws CheckpointError where the file has others.
  static OptimizerFiles of_model_file(std::shared_ptr<DeferredArchive> file, const Value& optimizer,
                                      const std::vector<NamedShapes>& params);

  /// Opens a universal checkpoint in `folder`. `params`: for each group, the parameters with their shapes.
  /// Throws CheckpointError where a parameter or a file is missing or has another shape.
  static OptimizerFiles of_universal(const std::filesystem::path& folder, const TagArchives& archives,
                                     const std::vector<NamedShapes>& params);

  /// Adds the files of another place among the ranks that share a model out. Of a parameter that both hold
  /// these stay. Throws CheckpointError where those have another number of groups.
  void join(OptimizerFiles others);

  const std::vector<Group>& groups() const { return groups_; }
  const std::optional<LossScalerStates>& loss_scaler() const { return loss_scaler_; }
  /// Says whether the last step was skipped because of gradients that were not finite; stage 0 does not say
  /// so.
  bool overflow() const { return overflow_; }
  /// Says whether the files hold a state of the parameter, its masters included. With optimizers that have
  /// none they hold nothing at all.
  bool holds(const std::string& parameter) const;
  bool holds_nothing() const { return pieces_.empty() && state_files_.empty(); }
  /// Returns the number of elements that the files hold of a parameter's state; 0 where they have none.
  int64_t numel(const std::string& parameter, const std::string& state) const;
  /// Returns the type of a parameter's masters in the files: fp64, or fp32 where they are that or narrower.
  at::ScalarType master_dtype(const std::string& parameter) const;
  /// Copies elements of a parameter's state into `destination` (1-D, as many, any dtype and device). Throws
  /// CheckpointError, naming the parameter, where the files do not hold them all.
  void read(const std::string& parameter, const std::string& state, const Interval& elements,
            const at::Tensor& destination) const;
  /// Returns the bytes that were read from the files so far.
  uint64_t bytes_read() const;

 private:
  /// Names elements of a parameter that lie together in a file.
  struct Piece {
    const DeferredArchive* file = nullptr;
    at::Tensor tensor;
    int64_t begin = 0;  // in the tensor
    Interval in_param;
  };

  /// Names the file of one state of one parameter. There may be thousands: none stays open.
  struct StateFile {
    std::filesystem::path path;
    std::optional<FileSums> sums;
    int64_t numel = 0;
    bool zeros_follow = false;        // rows of a vocabulary's padding, which the file leaves out
    mutable bool is_checked = false;  // its checksums were compared
  };

  void add_universal_group(const std::filesystem::path& folder, const TagArchives& archives,
                           const Value& options, const NamedShapes& params);
  void add_universal_numbers(const ParameterNumbers& numbers, const std::vector<NamedShapes>& params);
  void add_state_file(size_t group, const std::string& parameter, const std::string& state,
                      const std::vector<int64_t>& sizes, const DeferredArchive& archive, StateFile file);
  void read_state_file(const StateFile& file, const Interval& elements, const at::Tensor& destination) const;
  void add_partition(const DeferredArchive& file, const ZeroOptimizerStates& states);
  void require_whole(const std::vector<NamedShapes>& shapes, const std::filesystem::path& folder) const;
  void add_plain_group(size_t index, const DeferredArchive& file, PlainGroupStates group,
                       const NamedShapes& params);
  void add_piece(const std::string& parameter, const std::string& state, const DeferredArchive& file,
                 const at::Tensor& tensor, int64_t begin, int64_t numel);
  void note_state(size_t group, const std::string& name, at::ScalarType type);

  std::vector<std::shared_ptr<DeferredArchive>> files_;
  std::vector<Group> groups_;
  std::optional<LossScalerStates> loss_scaler_;
  bool overflow_ = false;
  std::map<std::pair<std::string, std::string>, std::vector<Piece>> pieces_;  // by parameter and state
  std::map<std::pair<std::string, std::string>, StateFile> state_files_;      // the same, universal
  mutable uint64_t closed_bytes_ = 0;                                         // read from state files
};

}  // namespace deepspeed::checkpoint
