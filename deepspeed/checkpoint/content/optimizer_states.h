// This is the content of an optim_states file of ZeRO stages 1 to 3 (one rank's partitions), as plain data;
// the keys of the file stand in optimizer_states.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/content/parameter_numbers.h"
#include "deepspeed/checkpoint/content/version.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Has the members of DeepSpeed's LossScaler (not dynamic: only `cur_scale` counts) and DynamicLossScaler.
struct LossScalerStates {
  bool dynamic = false;
  double cur_scale = 1.0;
  int64_t cur_iter = 0;
  int64_t last_overflow_iter = -1;
  double scale_factor = 2.0;
  int64_t scale_window = 1000;
  double min_scale = 1.0;
  int64_t delayed_shift = 1;  // the hysteresis of the config
  int64_t cur_hysteresis = 1;
  bool consecutive_hysteresis = false;
  bool raise_error_at_min_scale = true;
  at::ScalarType dtype = at::kHalf;
};

/// Says where this rank's part of a parameter lies in its partition, in elements.
struct FragmentAddress {
  int64_t numel = 0;
  int64_t start = 0;
  friend bool operator==(const FragmentAddress&, const FragmentAddress&) = default;
};

/// Holds one rank's part of a parameter group, or at stage 3 of one of its sub-groups.
struct PartitionStates {
  at::Tensor fp32;              // (numel of the partition - padding), fp32; at stage 3 with padding
  size_t param_group = 0;       // stage 3: the optimizer's group that this is a sub-group of
  int64_t padding = 0;          // elements at the end of this rank's partition that belong to no parameter
  int64_t partition_count = 1;  // ranks that share the group
  std::vector<std::pair<std::string, FragmentAddress>> fragments;
  /// Holds the optimizer's own state, empty before its first step: "exp_avg", ... over the whole padded
  /// partition.
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::optional<int64_t> step;
  /// Holds, by name, a number for each parameter of the whole group, by its own: alike in all ranks' files.
  ParameterNumbers numbers;
  Json options = Json::object();  // hyperparameters of the group: "lr", "betas", ...
};

struct ZeroOptimizerStates {
  int zero_stage = 1;  // 1 to 3
  /// Says that DeepSpeed's BF16_Optimizer wrote the file: its partitions keep their padding, for which
  /// `padding` is 0 then, and its fragments lie where they say.
  bool is_of_bf16_optimizer = false;
  LossScalerStates loss_scaler;
  bool overflow = false;
  double clip_grad = 0.0;
  std::vector<PartitionStates> groups;
  Json ds_config = Json::object();
  std::string ds_version = kDeepSpeedVersion;
};

Value build_optimizer_states(const ZeroOptimizerStates& states);

/// Reads the content of a file. Throws CheckpointError naming what is missing or of another kind,
/// NotSupportedError for files of DeepSpeed's elastic_checkpoint.
ZeroOptimizerStates parse_optimizer_states(const Value& value);

/// Says whether an optimizer's dict is that of DeepSpeed's BF16_Optimizer, which is one rank's part.
bool is_of_bf16_optimizer(const Value& optimizer);

/// Reads the weights alone, without state and options: all that zero_to_fp32 needs of the file.
ZeroOptimizerStates parse_partitions(const Value& value);

}  // namespace deepspeed::checkpoint
