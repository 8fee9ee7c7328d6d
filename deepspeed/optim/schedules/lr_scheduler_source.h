// A program may pass a schedule object, or a callable that makes one for the optimizer.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/schedules/lr_scheduler_adapter.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Names the groups and the torch optimizer that a schedule is made for.
struct LrSchedulerTarget {
  std::vector<ParamGroup>& groups;  // must outlive the schedule
  std::shared_ptr<torch::optim::Optimizer> torch_optimizer =
      nullptr;  // the program's own; null: the config's is used
};

/// Throws UsageError for a GroupLrScheduler that a program passes ready-made. Such a schedule was made over
/// other groups than the optimizer's, so the options that it writes besides the rates would be lost.
DEEPSPEED_API void check_is_not_foreign(const LrScheduler& scheduler);
[[noreturn]] DEEPSPEED_API void refuse_missing_scheduler();

/// Holds a ready schedule object, or a callable that makes one. An object is a shared_ptr to a
/// UserLrScheduler, or to a torch::optim::LRScheduler over the torch optimizer that the program passes with
/// it. A callable takes the parameter groups (std::vector<ParamGroup>&) or a torch::optim::Optimizer&, and
/// returns such an object as a shared_ptr or unique_ptr. The torch optimizer is the program's own if there is
/// one, otherwise a stand-in with the same groups whose rates the engine follows.
class DEEPSPEED_API LrSchedulerSource {
 public:
  LrSchedulerSource(std::nullptr_t = nullptr) {}

  template <class T>
  LrSchedulerSource(std::shared_ptr<T> scheduler) {
    if (scheduler == nullptr) return;
    make_ = [scheduler = std::move(scheduler)](const LrSchedulerTarget& target) {
      if constexpr (std::derived_from<T, LrScheduler>) check_is_not_foreign(*scheduler);
      return adapt(scheduler, target, target.torch_optimizer);
    };
  }

  template <class F>
  requires std::invocable < F&, std::vector<ParamGroup>
  & > LrSchedulerSource(F make) {
    make_ = [make = std::move(make)](const LrSchedulerTarget& target) {
      std::shared_ptr scheduler = make(target.groups);
      return own_or_adapt(std::move(scheduler), target, target.torch_optimizer);
    };
  }

  template <class F>
  requires(std::invocable<F&, torch::optim::Optimizer&> && !std::invocable<F&, std::vector<ParamGroup>&>)
      LrSchedulerSource(F make) {
    make_ = [make = std::move(make)](const LrSchedulerTarget& target) {
      const auto optimizer =
          target.torch_optimizer ? target.torch_optimizer : stand_in_optimizer(target.groups);
      std::shared_ptr scheduler = make(*optimizer);
      return own_or_adapt(std::move(scheduler), target, optimizer);
    };
  }

  explicit operator bool() const { return make_ != nullptr; }
  /// Makes the schedule. Throws UsageError for a null object, or one that does not belong to the optimizer.
  std::shared_ptr<LrScheduler> make(const LrSchedulerTarget& target) const { return make_(target); }

 private:
  using TorchOptimizerPtr = std::shared_ptr<torch::optim::Optimizer>;

  template <class T>
  static std::shared_ptr<LrScheduler> adapt(const std::shared_ptr<T>& scheduler,
                                            const LrSchedulerTarget& target,
                                            const TorchOptimizerPtr& optimizer) {
    if (scheduler == nullptr) refuse_missing_scheduler();
    if constexpr (std::derived_from<T, torch::optim::LRScheduler>) {
      return adapt_torch_scheduler(scheduler, optimizer, target.groups);
    } else if constexpr (std::same_as<T, torch::optim::ReduceLROnPlateauScheduler>) {
      refuse_plateau_scheduler();
    } else {
      static_assert(UserLrScheduler<T>,
                    "a schedule needs get_lr(), step(), state_dict() and load_state_dict(state)");
      return std::make_shared<LrSchedulerAdapter<T>>(scheduler, target.groups);
    }
  }

  // Adapts the schedule. A schedule of this library, made over the target's own groups, is returned as it is:
  // it writes those groups by itself.
  template <class T>
  static std::shared_ptr<LrScheduler> own_or_adapt(std::shared_ptr<T> scheduler,
                                                   const LrSchedulerTarget& target,
                                                   const TorchOptimizerPtr& optimizer) {
    if constexpr (std::derived_from<T, LrScheduler>) {
      if (scheduler == nullptr) refuse_missing_scheduler();
      return scheduler;
    } else {
      return adapt(scheduler, target, optimizer);
    }
  }

  std::function<std::shared_ptr<LrScheduler>(const LrSchedulerTarget& target)> make_;
};

}  // namespace deepspeed::optim
