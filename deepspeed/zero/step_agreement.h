// What the ranks' next step depends on, for the comparison of what they hold where they meet: a rate that one
// rank alone changed is an error of that step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "deepspeed/comm/group/held_values.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::zero {

/// What an engine decides by.
struct BatchSettings {
  int64_t gradient_accumulation_steps = 1;
  int64_t train_micro_batch_size_per_gpu = 1;
  bool is_boundary = true;
  bool averages_gradients = true;
};

/// "lr of parameter group 0" and "0.1", of every hyperparameter.
comm::NamedTexts hyperparameter_texts(const std::vector<optim::ParamGroup>& groups);

class StepAgreement {
 public:
  /// The group for the step's collectives, which only meet where the ranks hold the same.
  comm::ProcessGroup watch(const comm::ProcessGroup& group) const { return group.holding(values_); }
  void set_batch(const BatchSettings& batch) { batch_ = batch; }
  /// From here on the collectives carry these values. Costs a hash of them; no message.
  void tell(const std::vector<optim::ParamGroup>& groups, double loss_scale);

 private:
  BatchSettings batch_;
  std::shared_ptr<comm::CurrentValues> values_ = std::make_shared<comm::CurrentValues>();
};

}  // namespace deepspeed::zero
