// Measures the times of the parts of a step: DeepSpeed's wall_clock_breakdown.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace deepspeed::profile {

/// Names the parts of a step. In the log they are fwd, bwd, bwd_inner (only autograd), bwd_allreduce (time in
/// which the host ran or awaited reductions) and step.
enum class StepPart : size_t { kForward, kBackward, kBackwardInner, kBackwardAllreduce, kStep, kCount };
constexpr size_t kNumStepParts = static_cast<size_t>(StepPart::kCount);

/// Sums the time of each part of a step, per micro batch, per report and per update. A measurement waits for
/// the device at both ends.
class StepTimers {
 public:
  /// Measures from its construction to its destruction; does nothing if `timers` is null.
  class Scope {
   public:
    Scope(StepTimers* timers, StepPart part);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepTimers* timers_;
    StepPart part_;
    std::chrono::steady_clock::time_point start_;
  };

  /// Moves `ms` milliseconds from the sums of the part `from` to those of `to`. The engine does so with
  /// reductions that ran while autograd was measured.
  void move(StepPart from, StepPart to, double ms);
  /// Returns each part's time since the last call: "time (ms) | fwd_microstep: 1.25 | ...".
  std::string micro_step_line();
  /// Returns each part's sum since the last call: "time (ms) | fwd: 5.00 | ...".
  std::string global_line();
  /// Returns the milliseconds of each part since the last call.
  std::array<double, kNumStepParts> take_update();
  /// Returns the milliseconds of the last micro_step_line() and global_line() by name: "fwd_microstep",
  /// "fwd", ...
  const std::map<std::string, double>& last() const { return last_; }

 private:
  using Sums = std::array<double, kNumStepParts>;  // ms

  std::string take(Sums& sums, const char* suffix);

  Sums micro_step_{};
  Sums global_{};
  Sums update_{};
  std::map<std::string, double> last_;
};

}  // namespace deepspeed::profile
