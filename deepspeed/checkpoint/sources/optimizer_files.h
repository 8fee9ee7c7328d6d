// Reads a checkpoint's optimizer by parameter, whatever stage and number of ranks saved it. Each rank that
// loads reads the intervals of elements that it needs.
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

/// Name of the fp32 master weights among a parameter's states.
inline constexpr const char* kMasterState = "fp32";
/// Name of the step count, which is a separate file in a universal checkpoint.
inline constexpr const char* kStepState = "step";

class OptimizerFiles {
 public:
  struct Group {
    int64_t step = 0;
    Json options = Json::object();                               // hyperparameters
    std::vector<std::pair<std::string, at::ScalarType>> states;  // "exp_avg", ..., without the masters
    ParameterNumbers numbers;
  };

  /// Opens the partitions of stages 1 to 3. `shapes`, the param_shapes of the model file, tell where the
  /// parameters of `mp_rank` lie. The param_slice_mappings in the optimizer files would tell this too, but
  /// are wrong with DeepSpeed's round_robin_gradients. Those that DeepSpeed's BF16_Optimizer writes are
  /// right. They are used if there are no shapes, as in DeepSpeed's bf16 pipelines at stage 0. Throws
  /// CheckpointError if a rank's file is missing or files do not fit together.
  static OptimizerFiles of_partitions(const std::filesystem::path& dir, const std::string& tag,
                                      const TagArchives& archives,
                                      const std::optional<std::vector<NamedShapes>>& shapes, int mp_rank = 0);
  /// Reads the optimizer of stage 0, which is in the model file. `params` lists, per group and in order, the
  /// parameters that need a gradient, with their shapes. Throws CheckpointError if the file has others.
  static OptimizerFiles of_model_file(std::shared_ptr<DeferredArchive> file, const Value& optimizer,
                                      const std::vector<NamedShapes>& params);

  /// Opens a universal checkpoint in `folder`. `params` lists each group's parameters with their shapes.
  /// Throws CheckpointError if a parameter or file is missing or has another shape.
  static OptimizerFiles of_universal(const std::filesystem::path& folder, const TagArchives& archives,
                                     const std::vector<NamedShapes>& params);

  /// Adds the files of another model-parallel rank. A parameter in both keeps the files of this object.
  /// Throws CheckpointError if the number of groups differs.
  void join(OptimizerFiles others);

  const std::vector<Group>& groups() const { return groups_; }
  const std::optional<LossScalerStates>& loss_scaler() const { return loss_scaler_; }
  /// Returns whether the last step was skipped because gradients were not finite. Stage 0 does not record it.
  bool overflow() const { return overflow_; }
  /// Returns whether the files hold any state of the parameter, masters included. Files of an optimizer
  /// without states and masters hold nothing at all.
  bool holds(const std::string& parameter) const;
  bool holds_nothing() const { return pieces_.empty() && state_files_.empty(); }
  /// Returns how many elements of a parameter's state the files hold; 0 if none.
  int64_t numel(const std::string& parameter, const std::string& state) const;
  /// Returns the dtype to read a parameter's masters in. It is fp64 if partitions or a model file hold them
  /// in fp64, otherwise fp32.
  at::ScalarType master_dtype(const std::string& parameter) const;
  /// Copies elements of a parameter's state into `destination` (1-D, same size, any dtype and device). Throws
  /// CheckpointError, naming the parameter, if the files do not hold all of them.
  void read(const std::string& parameter, const std::string& state, const Interval& elements,
            const at::Tensor& destination) const;
  /// Returns the number of bytes read from the files so far.
  uint64_t bytes_read() const;

 private:
  /// Describes a run of a parameter's elements, `in_param`. They begin at element `begin` of `tensor` in
  /// `file`.
  struct Piece {
    const DeferredArchive* file = nullptr;
    at::Tensor tensor;
    int64_t begin = 0;  // in the tensor
    Interval in_param;
  };

  /// Describes the file of one state of one parameter. There may be thousands, so none stays open.
  struct StateFile {
    std::filesystem::path path;
    std::optional<FileSums> sums;
    int64_t numel = 0;
    bool zeros_follow = false;        // the file omits the padding rows of a vocabulary, which are zero
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
  std::map<std::pair<std::string, std::string>, StateFile>
      state_files_;                    // by parameter and state, for universal checkpoints
  mutable uint64_t closed_bytes_ = 0;  // read from state files that are closed again
};

}  // namespace deepspeed::checkpoint
