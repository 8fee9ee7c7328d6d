// The interface of all learning rate schedules. A schedule is stepped once per optimizer step that was not
// skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::optim {

class DEEPSPEED_API LrScheduler {
 public:
  virtual ~LrScheduler() = default;

  /// Advances one step, or to step `last_batch_iteration`, and writes the rates into the optimizer's groups.
  /// OneCycle also writes the betas.
  virtual void step(std::optional<int64_t> last_batch_iteration = {}) = 0;
  /// Throws what step() would throw for this argument, and changes nothing.
  virtual void check_step(std::optional<int64_t> /*last_batch_iteration*/) const {}
  /// Returns the rates for the current step, one per group.
  virtual std::vector<double> get_lr() const = 0;
  /// Returns the rates last written into the groups.
  virtual std::vector<double> get_last_lr() const = 0;
  /// Returns the schedule's parameters, under the names that DeepSpeed scripts read. Empty by default.
  virtual Json attributes() const { return Json::object(); }
  virtual Json state_dict() const = 0;
  virtual void load_state_dict(const Json& state) = 0;
};

}  // namespace deepspeed::optim
