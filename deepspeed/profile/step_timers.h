// The times of the parts of a step are measured here: DeepSpeed's wall_clock_breakdown.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace deepspeed::profile {

/// Names the parts, in the log fwd, bwd, bwd_inner (autograd alone), bwd_allreduce (the time in which the
/// host was busy with reductions, or waited for them) and step.
enum class StepPart : size_t { kForward, kBackward, kBackwardInner, kBackwardAllreduce, kStep, kCount };
constexpr size_t kNumStepParts = static_cast<size_t>(StepPart::kCount);

/// Adds up what each part takes, in the micro batch and since the last update that was reported. Waits for
/// the device at both ends of a part.
class StepTimers {
 public:
  /// Measures from its begin to its end; nothing where `timers` is null.
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

  /// Counts so many milliseconds, which were measured in one part, as time of another.
  void move(StepPart from, StepPart to, double ms);
  /// Returns the times since the last call: "time (ms) | fwd_microstep: 1.25 | bwd_microstep: ...".
  std::string micro_step_line();
  /// Returns the sums since the last call: "time (ms) | fwd: 5.00 | ...".
  std::string global_line();
  /// Returns the milliseconds of each part since the last call.
  std::array<double, kNumStepParts> take_update();
  /// Returns milliseconds by name (fwd_microstep, ..., fwd, ...), as the last line of each kind had them.
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
