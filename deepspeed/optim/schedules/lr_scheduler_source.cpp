#include "deepspeed/optim/schedules/lr_scheduler_source.h"

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/group_lr_scheduler.h"

namespace deepspeed::optim {
std::vector<double> rates_of_groups(const std::vector<double>& rates, size_t num_groups) {
  if (rates.size() == num_groups) return rates;
  if (rates.size() == 1) return std::vector<double>(num_groups, rates.front());
  raise<UsageError>("the schedule gives ", rates.size(), " rates, expected one, or one for each of ",
                    num_groups, " parameter groups");
}

void check_is_not_foreign(const LrScheduler& scheduler) {
  if (dynamic_cast<const GroupLrScheduler*>(&scheduler) == nullptr) return;
  raise<UsageError>(
      "the schedule was made over other parameter groups than the optimizer's; pass a callable that makes it "
      "over the groups that it is given");
}

void refuse_missing_scheduler() {
  raise<UsageError>("the callable made no schedule: it returned null; return a pointer to one");
}

}  // namespace deepspeed::optim
