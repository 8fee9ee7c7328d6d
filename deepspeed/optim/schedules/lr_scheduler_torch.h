// torch's own schedules: they write the rates of a torch optimizer, which reach the optimizer's groups here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/param_group.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace deepspeed::optim {

/// Makes a schedule of torch's `scheduler`, which drives `optimizer`, whose groups correspond to `groups`. A
/// rate that was set in `groups` goes into the torch optimizer before a step, so that the schedule goes on
/// from it. The state is {"step_count": n, "last_lr": [rate a group]}: all that torch's schedules in C++ keep
/// between steps. Throws UsageError where there is no torch optimizer, or where the schedule drives another
/// one.
std::shared_ptr<LrScheduler> adapt_torch_scheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                                   std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                   std::vector<ParamGroup>& groups);

/// Makes a torch optimizer with as many groups, of these rates and without parameters, for a torch schedule
/// to drive where the optimizer itself is none of torch's. Its step() throws UsageError.
std::shared_ptr<torch::optim::Optimizer> stand_in_optimizer(const std::vector<ParamGroup>& groups);

/// Throws UsageError where there is a number: torch's schedules go one step at a time.
void refuse_step_by_number(std::optional<int64_t> last_batch_iteration);

/// Throws NotSupportedError for ReduceLROnPlateau, which needs a metric with each step, and whose state
/// cannot be read, so that no checkpoint could carry it.
[[noreturn]] void refuse_plateau_scheduler();

}  // namespace deepspeed::optim
