// Adapts schedules of any type to LrScheduler: objects with get_lr(), step(), state_dict() and
// load_state_dict(), and torch's classes.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/param_group.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace deepspeed::optim {

/// Returns one rate per group, given one for each or a single one for all. Throws UsageError for another
/// number of rates.
DEEPSPEED_API std::vector<double> rates_of_groups(const std::vector<double>& rates, size_t num_groups);
inline std::vector<double> rates_of_groups(double rate, size_t num_groups) {
  return std::vector<double>(num_groups, rate);
}

/// Lists the functions that a user's schedule must have. They are step(); get_lr() with one rate per group or
/// one number; state_dict() returning Json or a type convertible to and from Json; and load_state_dict()
/// taking that type. `get_last_lr()` and `step(last_batch_iteration)` are optional.
template <class T>
concept UserLrScheduler = requires(T& scheduler, const Json& json) {
  scheduler.step();
  rates_of_groups(scheduler.get_lr(), size_t{1});
  Json(scheduler.state_dict());
  scheduler.load_state_dict(json.get<std::decay_t<decltype(scheduler.state_dict())>>());
};

/// Steps the user's object and writes its rates into the groups. The rates are those of the object's
/// get_last_lr() if it has one, otherwise those of get_lr(). Rates are written at construction, at every step
/// and after loading a state. An object without rates before its first step leaves the groups unchanged until
/// then.
template <UserLrScheduler T>
class LrSchedulerAdapter : public LrScheduler {
 public:
  /// Writes the object's rates. `groups` must outlive the adapter.
  LrSchedulerAdapter(std::shared_ptr<T> scheduler, std::vector<ParamGroup>& groups)
      : scheduler_(std::move(scheduler)), groups_(groups) {
    write(/*may_be_missing=*/true);
  }

  /// Steps the object and writes its rates. Throws UsageError if a number is given but the object has no
  /// step(int64_t).
  void step(std::optional<int64_t> last_batch_iteration = {}) override {
    check_step(last_batch_iteration);
    if (!last_batch_iteration) {
      scheduler_->step();
    } else if constexpr (kStepsByNumber) {
      scheduler_->step(*last_batch_iteration);
    }
    write(/*may_be_missing=*/false);
  }
  void check_step(std::optional<int64_t> last_batch_iteration) const override {
    if (!last_batch_iteration || kStepsByNumber) return;
    raise<UsageError>("step(last_batch_iteration = ", *last_batch_iteration,
                      "): the schedule has no step(int64_t); leave the number out");
  }
  std::vector<double> get_lr() const override {
    return rates_of_groups(scheduler_->get_lr(), groups_.size());
  }
  std::vector<double> get_last_lr() const override { return last_lr_; }
  Json state_dict() const override { return scheduler_->state_dict(); }
  void load_state_dict(const Json& state) override {
    scheduler_->load_state_dict(state.get<std::decay_t<decltype(scheduler_->state_dict())>>());
    write(/*may_be_missing=*/false);
  }

 private:
  static constexpr bool kStepsByNumber = requires(T & scheduler) { scheduler.step(int64_t{}); };

  std::vector<double> rates() const {
    if constexpr (requires { rates_of_groups(scheduler_->get_last_lr(), size_t{1}); }) {
      return rates_of_groups(scheduler_->get_last_lr(), groups_.size());
    } else {
      return get_lr();
    }
  }

  bool has_no_rates() const {
    if constexpr (requires { scheduler_->get_last_lr().empty(); }) {
      return scheduler_->get_last_lr().empty();
    } else if constexpr (requires { scheduler_->get_lr().empty(); }) {
      return scheduler_->get_lr().empty();
    }
    return false;
  }

  void write(bool may_be_missing) {
    if (may_be_missing && has_no_rates()) return;
    last_lr_ = rates();
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i].set_lr(last_lr_[i]);
  }

  std::shared_ptr<T> scheduler_;
  std::vector<ParamGroup>& groups_;
  std::vector<double> last_lr_;
};

/// Makes a schedule from torch's `scheduler`, which drives `optimizer`. The groups of `optimizer` correspond
/// to `groups`. A rate set in `groups` is copied into the torch optimizer before a step, so the schedule
/// continues from it. The state is {"step_count": n, "last_lr": [one rate per group]}, all that torch's C++
/// schedules keep between steps. Throws UsageError if there is no torch optimizer or the schedule drives
/// another one.
DEEPSPEED_API std::shared_ptr<LrScheduler> adapt_torch_scheduler(
    std::shared_ptr<torch::optim::LRScheduler> scheduler, std::shared_ptr<torch::optim::Optimizer> optimizer,
    std::vector<ParamGroup>& groups);

/// Makes a torch optimizer for a torch schedule to drive. It is used if the engine's optimizer is not
/// torch's. It has as many groups as `groups`, with their rates and no parameters. Its step() throws
/// UsageError.
DEEPSPEED_API std::shared_ptr<torch::optim::Optimizer> stand_in_optimizer(
    const std::vector<ParamGroup>& groups);

/// Throws UsageError if a number is given: torch's schedules advance one step at a time.
DEEPSPEED_API void refuse_step_by_number(std::optional<int64_t> last_batch_iteration);

/// Throws NotSupportedError for ReduceLROnPlateau. It needs a metric at each step, and its state cannot be
/// read, so no checkpoint could store it.
[[noreturn]] DEEPSPEED_API void refuse_plateau_scheduler();

}  // namespace deepspeed::optim
