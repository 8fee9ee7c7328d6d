// Holds the content of an optim_states file of ZeRO stages 1 to 3 (one rank's partitions) as plain data;
// optimizer_states.cpp has the file's keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/content/loss_scaler_states.h"
#include "deepspeed/checkpoint/content/parameter_numbers.h"
#include "deepspeed/checkpoint/content/version.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Locates this rank's part of a parameter in the rank's partition, in elements.
struct FragmentAddress {
  int64_t numel = 0;
  int64_t start = 0;
  friend bool operator==(const FragmentAddress&, const FragmentAddress&) = default;
};

/// Holds one rank's part of a parameter group, or at stage 3 of a sub-group.
struct PartitionStates {
  at::Tensor fp32;              // (partition size - padding), fp32; at stage 3 with padding
  size_t param_group = 0;       // stage 3: the optimizer's group that contains this sub-group
  int64_t padding = 0;          // elements at the end of this rank's partition that belong to no parameter
  int64_t partition_count = 1;  // number of ranks that share the group
  std::vector<std::pair<std::string, FragmentAddress>> fragments;
  /// Holds the optimizer's state ("exp_avg", ...) over the padded partition. It is empty before the first
  /// step.
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::optional<int64_t> step;
  /// Holds the per-parameter numbers (parameter_numbers.h) of the whole group. All ranks' files hold the same
  /// ones.
  ParameterNumbers numbers;
  Json options = Json::object();  // hyperparameters of the group: "lr", "betas", ...
};

struct ZeroOptimizerStates {
  int zero_stage = 1;  // 1 to 3
  /// Marks a file of DeepSpeed's BF16_Optimizer. Its partitions include their padding, so `padding` is 0. Its
  /// fragments lie at the addresses that the file gives. The addresses in other files may be wrong.
  bool is_of_bf16_optimizer = false;
  LossScalerStates loss_scaler;
  bool overflow = false;
  double clip_grad = 0.0;
  std::vector<PartitionStates> groups;
  Json ds_config = Json::object();
  std::string ds_version = kDeepSpeedVersion;
};

Value build_optimizer_states(const ZeroOptimizerStates& states);

/// Parses the content of an optimizer file. Throws CheckpointError, naming what is missing or of the wrong
/// type, and NotSupportedError for files of DeepSpeed's elastic_checkpoint.
ZeroOptimizerStates parse_optimizer_states(const Value& value);

/// Returns whether an optimizer's dict comes from DeepSpeed's BF16_Optimizer. Such a dict is one rank's part.
bool is_of_bf16_optimizer(const Value& optimizer);

/// Reads only the fp32 weights, without state and options: all that zero_to_fp32 needs.
ZeroOptimizerStates parse_partitions(const Value& value);

}  // namespace deepspeed::checkpoint
