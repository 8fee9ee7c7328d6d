#include "deepspeed/optim/schedules/group_lr_scheduler.h"

#include "deepspeed/base/error.h"

namespace deepspeed::optim {

GroupLrScheduler::GroupLrScheduler(std::vector<ParamGroup>& groups) : groups_(groups) {
  if (groups.empty()) {
    raise<UsageError>("the optimizer has no parameter group, expected at least one");
  }
}

void GroupLrScheduler::check_step(std::optional<int64_t> last_batch_iteration) const {
  if (last_batch_iteration && *last_batch_iteration < -1) {
    raise<UsageError>("step(", *last_batch_iteration, "): expected at least -1");
  }
}

void GroupLrScheduler::begin_at(int64_t t) {
  last_batch_iteration_ = t;
  for (size_t i = 0; i < groups_.size(); ++i) {
    last_lr_[i] = groups_[i].lr();
  }
}

void GroupLrScheduler::step(std::optional<int64_t> last_batch_iteration) {
  check_step(last_batch_iteration);
  last_batch_iteration_ = last_batch_iteration.value_or(last_batch_iteration_ + 1);
  write();
}

void GroupLrScheduler::write() {
  last_lr_ = rates_at(last_batch_iteration_);
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].set_lr(last_lr_[i]);
  }
  write_extra(last_batch_iteration_);
}

Json GroupLrScheduler::state_dict() const { return {{"last_batch_iteration", last_batch_iteration_}}; }

void GroupLrScheduler::load_state_dict(const Json& state) {
  const bool fits = state.is_object() && state.contains("last_batch_iteration") &&
                    state["last_batch_iteration"].is_number_integer() && state["last_batch_iteration"] >= -1;
  if (!fits) {
    raise<CheckpointError>("the state ", state.dump(),
                           " holds no whole number 'last_batch_iteration' of at least -1");
  }
  last_batch_iteration_ = state["last_batch_iteration"].get<int64_t>();
  write();
}

}  // namespace deepspeed::optim
