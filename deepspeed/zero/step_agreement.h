// Values that all ranks' next step depends on, compared when the ranks meet in a collective. A learning rate
// changed on only one rank is an error of that step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "deepspeed/comm/group/held_values.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::zero {

/// Holds an engine's batch settings, which must be equal on all ranks.
struct BatchSettings {
  int64_t gradient_accumulation_steps = 1;
  int64_t train_micro_batch_size_per_gpu = 1;
  bool is_boundary = true;
  bool averages_gradients = true;
};

/// Returns pairs such as "lr of parameter group 0" and "0.1", for every hyperparameter.
comm::NamedTexts hyperparameter_texts(const std::vector<optim::ParamGroup>& groups);

class StepAgreement {
 public:
  /// Returns `group` with a check: its collectives throw if ranks differ in what tell() set.
  comm::ProcessGroup watch(const comm::ProcessGroup& group) const { return group.holding(values_); }
  void set_batch(const BatchSettings& batch) { batch_ = batch; }
  /// Sets this rank's hyperparameters and loss scale, which later collectives compare. Costs a hash; sends no
  /// message.
  void tell(const std::vector<optim::ParamGroup>& groups, double loss_scale);

 private:
  BatchSettings batch_;
  std::shared_ptr<comm::CurrentValues> values_ = std::make_shared<comm::CurrentValues>();
};

}  // namespace deepspeed::zero
