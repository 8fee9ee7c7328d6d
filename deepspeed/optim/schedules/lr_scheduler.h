// All learning rate schedules have this interface. A schedule is stepped once per optimizer step that was not
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

  /// Goes on by one step, or to the step `last_batch_iteration`, and writes the rates (OneCycle also the
  /// betas) into the optimizer's groups.
  virtual void step(std::optional<int64_t> last_batch_iteration = {}) = 0;
  /// Throws what step() of the same argument would, and changes nothing.
  virtual void check_step(std::optional<int64_t> /*last_batch_iteration*/) const {}
  /// Returns the rates for the current step, one a group.
  virtual std::vector<double> get_lr() const = 0;
  /// Returns the rates that were written last.
  virtual std::vector<double> get_last_lr() const = 0;
  /// Returns what it computes with, under the names that scripts of DeepSpeed read.
  virtual Json attributes() const { return Json::object(); }
  virtual Json state_dict() const = 0;
  virtual void load_state_dict(const Json& state) = 0;
};

}  // namespace deepspeed::optim
