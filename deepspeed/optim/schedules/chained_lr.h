// The schedules of torch.optim.lr_scheduler that a config can name. As in torch's Python code each step
// computes a group's next rate from its last one. A rate set by hand is therefore continued from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Computes the rate after a step. Its arguments are the rate before the step, the rate at construction, and
/// the number of steps made. That number is 0 at construction.
using LrRule = std::function<double(double rate, double base, int64_t step)>;

/// Multiplies the rate by gamma after every `step_size` steps.
LrRule step_lr(int64_t step_size, double gamma);
/// Multiplies the rate by gamma at each milestone, as often as it is listed.
LrRule multi_step_lr(std::vector<int64_t> milestones, double gamma);
/// Returns base * factor for `total_iters` steps, then base.
LrRule constant_lr(double factor, int64_t total_iters);
/// Moves linearly from base * start_factor to base * end_factor over `total_iters` steps.
LrRule linear_lr(double start_factor, double end_factor, int64_t total_iters);
/// Multiplies the rate by gamma after every step.
LrRule exponential_lr(double gamma);
/// Follows base * (1 - step / total_iters) ^ power, and is 0 afterwards.
LrRule polynomial_lr(int64_t total_iters, double power);
/// Follows a cosine. It is eta_min + (base - eta_min) * (1 + cos(pi * step / t_max)) / 2.
LrRule cosine_annealing_lr(int64_t t_max, double eta_min);

/// Runs a schedule given by an LrRule. Its state has torch's names: {"base_lrs", "last_epoch", "_step_count",
/// "_last_lr"}.
class ChainedLr : public LrScheduler {
 public:
  /// Writes the first rates. `groups` must outlive the schedule. Throws UsageError if there is no group.
  ChainedLr(std::vector<ParamGroup>& groups, LrRule rule);

  /// Advances one step. Throws UsageError if a number is given.
  void step(std::optional<int64_t> last_batch_iteration = {}) override;
  void check_step(std::optional<int64_t> last_batch_iteration) const override;
  std::vector<double> get_lr() const override;
  std::vector<double> get_last_lr() const override { return last_lr_; }
  Json state_dict() const override;
  /// Restores the state and writes its rates. Throws CheckpointError for a state of another kind or number of
  /// groups.
  void load_state_dict(const Json& state) override;

 private:
  void apply_rule();

  std::vector<ParamGroup>& groups_;
  LrRule rule_;
  std::vector<double> base_lr_;
  std::vector<double> last_lr_;
  int64_t num_steps_ = 0;
};

}  // namespace deepspeed::optim
