// A schedule of torch's kind that LibTorch lacks, and what checkpoints keep of all of that kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <torch/optim/schedulers/lr_scheduler.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::optim {

/// Multiplies each group's first rate by a function of the step, as torch's class in Python does.
class DEEPSPEED_API LambdaLR : public torch::optim::LRScheduler {
 public:
  using Factor = std::function<double(int64_t step)>;

  /// Sets the rates of step 0 at once. The optimizer must outlive the schedule.
  LambdaLR(torch::optim::Optimizer& optimizer, Factor factor);

  /// Returns the rates that are multiplied, one a group.
  const std::vector<double>& base_lrs() const { return base_lrs_; }

 protected:
  std::vector<double> get_lrs() override;

 private:
  std::vector<double> base_lrs_;
  Factor factor_;
};

/// Returns the present rates of the optimizer that a schedule drives, one a group.
std::vector<double> rates_of(const torch::optim::LRScheduler& schedule);
/// Returns a schedule's first rates: those that a LambdaLR multiplies, otherwise the present ones.
std::vector<double> base_rates_of(const torch::optim::LRScheduler& schedule);

/// Returns the state under the names of torch's schedules in Python (last_epoch, _step_count, _last_lr,
/// base_lrs, lr_lambdas), whose load_state_dict() takes it.
Json torch_schedule_state(const torch::optim::LRScheduler& schedule, const std::vector<double>& base_lrs);
/// Sets the schedule's counter from such a state, Python's or one of earlier versions (step_count, last_lr).
/// Returns the rates to write. Throws CheckpointError for another state.
std::vector<double> load_torch_schedule_state(torch::optim::LRScheduler& schedule, const Json& state,
                                              size_t num_groups);

}  // namespace deepspeed::optim
