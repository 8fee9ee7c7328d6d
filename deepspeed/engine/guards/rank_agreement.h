// Ranks train one model together only where each was given the same.
#pragma once

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed {

/// Holds what a rank brings to initialize().
struct RankInput {
  const config::DeepSpeedConfig& config;
  const EngineModel& model;
  const optim::Optimizer* optimizer = nullptr;  // null: none
  bool own_optimizer = false;                   // the program passed it
  bool own_schedule = false;                    // the program passed one
};

/// Compares the ranks' input: the config's values (not paths, logs and what else is a rank's own), the
/// optimizer's groups with their hyperparameters, names, shapes and dtypes of parameters and buffers. All
/// ranks of the group call it; one number travels where they agree, nothing in a group of one. Throws
/// UsageError on all of them where two differ, with the keys or parameters and the values of both.
void require_agreement(const comm::ProcessGroup& group, const RankInput& input);
/// Compares the config and the hyperparameters alone: ranks that share a model out hold other parameters.
void require_agreement_of_options(const comm::ProcessGroup& group, const RankInput& input);

}  // namespace deepspeed
