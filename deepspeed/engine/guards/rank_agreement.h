// Checks that all ranks were given the same input. Otherwise they cannot train one model together.
#pragma once

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed {

/// Holds what a rank passes to initialize().
struct RankInput {
  const config::DeepSpeedConfig& config;
  const EngineModel& model;
  const optim::Optimizer* optimizer = nullptr;  // null: no optimizer
  bool own_optimizer = false;                   // the program passed an optimizer
  bool own_schedule = false;                    // the program passed a schedule
};

/// Compares the input of all ranks of the group. Compared are config values (not paths, logs and other
/// per-rank keys), the optimizer's groups with hyperparameters, and names, shapes and dtypes of parameters
/// and buffers. Collective. Sends one number if all agree, and nothing in a group of one. If two ranks
/// differ, all throw UsageError with the keys or parameters and both values.
void require_agreement(const comm::ProcessGroup& group, const RankInput& input);
/// Compares only the config and the hyperparameters. Ranks that divide a model hold different parameters.
void require_agreement_of_options(const comm::ProcessGroup& group, const RankInput& input);

}  // namespace deepspeed
