// Holds the `optimizer` entry of a model file at stage 0. It is the state_dict of a torch optimizer, with one
// state per parameter. In 16-bit precision it is wrapped, together with the fp32 masters and the loss scaler.
// DeepSpeed's wrapper of FusedAdam keeps a group's masters and states flat, as if of a single parameter; its
// wrapper of other optimizers keeps them per parameter. With fp16 autocast there are no masters, and the
// scaler is an additional entry of the state_dict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

struct ParamOptimizerState {
  std::vector<std::pair<std::string, at::Tensor>>
      tensors;  // "exp_avg", ... in the parameter's shape; may be empty
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> numbers = {};  // "lamb_coeff_freeze", ...
};

struct PlainGroupStates {
  std::vector<ParamOptimizerState> params;  // in the group's order; a single one with fp32_flat
  std::vector<std::string> names;           // of the parameters; empty if the file has none
  Json options = Json::object();
  at::Tensor fp32_flat;          // 16-bit, flat: the group's masters, unpadded
  std::vector<at::Tensor> fp32;  // 16-bit, by parameter: masters in the parameter's shape
};

struct PlainOptimizerStates {
  std::vector<PlainGroupStates> groups;
  bool has_masters = false;                     // 16-bit: the wrapped form
  std::optional<LossScalerStates> loss_scaler;  // 16-bit, or fp32 with loss scaling
  double clip_grad = 0.0;
};

Value build_plain_optimizer(const PlainOptimizerStates& states);

/// Parses the `optimizer` entry. Throws CheckpointError, naming what is missing or of the wrong type.
PlainOptimizerStates parse_plain_optimizer(const Value& value);

}  // namespace deepspeed::checkpoint
