// Base class of DeepSpeed's five schedules: keeps the step counter and writes rates into the groups.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Computes rates as a pure function of the step t. t is -1 after construction and 0 after the first step().
/// A derived class calls write() at the end of its constructor.
class GroupLrScheduler : public LrScheduler {
 public:
  /// Keeps `groups`, which must outlive the schedule. Throws UsageError if there is no group.
  explicit GroupLrScheduler(std::vector<ParamGroup>& groups);

  /// Advances to the next step, or to the given one. Throws UsageError for a step below -1.
  void step(std::optional<int64_t> last_batch_iteration = {}) override;
  void check_step(std::optional<int64_t> last_batch_iteration) const override;
  std::vector<double> get_lr() const override { return rates_at(last_batch_iteration_); }
  std::vector<double> get_last_lr() const override { return last_lr_; }
  /// Returns {"last_batch_iteration": t}.
  Json state_dict() const override;
  /// Sets the counter to the state's step and writes that step's rates. Throws CheckpointError for a state
  /// without the counter.
  void load_state_dict(const Json& state) override;

  /// Sets the counter to t without writing rates. The next step is t + 1; the groups keep their rates until
  /// then.
  void begin_at(int64_t t);

 protected:
  virtual std::vector<double> rates_at(int64_t t) const = 0;
  /// Writes other options that the schedule sets at step t, such as betas.
  virtual void write_extra(int64_t /*t*/) {}

  int64_t last_batch_iteration() const { return last_batch_iteration_; }
  void write();
  std::vector<ParamGroup>& groups() { return groups_; }

 private:
  std::vector<ParamGroup>& groups_;
  int64_t last_batch_iteration_ = -1;
  std::vector<double> last_lr_;
};

}  // namespace deepspeed::optim
