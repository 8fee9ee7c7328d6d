// How a training run reports itself: on a terminal one line that is rewritten, elsewhere a plain line now and
// then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace examples {

struct StepReport {
  int64_t step = 0;       // optimizer steps done
  int64_t num_steps = 0;  // in the whole run
  double loss = 0.0;
  double lr = 0.0;
  std::optional<double> grad_norm;
  double tokens_per_second = 0.0;
  int64_t memory_bytes = 0;
  double seconds_left = 0.0;
};

/// Writes "step 20/300  loss 2.5143  lr 1.00e-03  norm 0.91  18.2k tok/s  412 MB  0:41 left".
std::string format(const StepReport& report);

/// Writes a time as "0:41", "12:05", "3:04:10".
std::string format_duration(double seconds);

/// Memory of this process that is resident now, in bytes; 0 where the system does not say.
int64_t resident_bytes();

class Progress {
 public:
  /// Makes a progress line; a silent one writes nothing (ranks other than 0). `plain_every`: steps between
  /// two plain lines, at least 1. `tokens_per_step`: those of all ranks together.
  Progress(std::FILE* stream, bool silent, int64_t num_steps, int64_t plain_every, int64_t tokens_per_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Notes a step; call it once a step, in order.
  void step(int64_t step, double loss, double lr, std::optional<double> grad_norm);

  /// Writes a line of its own; the progress line goes on below it.
  void note(const std::string& text);

  /// Leaves the time since the last step out of the speed: an evaluation or a checkpoint was made.
  void restart_clock();

 private:
  using Clock = std::chrono::steady_clock;
  void measure();
  void clear_line();

  std::FILE* stream_;
  bool silent_;
  bool terminal_;
  bool line_shown_ = false;
  int64_t num_steps_;
  int64_t plain_every_;
  int64_t tokens_per_step_;
  double seconds_per_step_ = 0.0;  // a running mean; 0: nothing measured yet
  Clock::time_point last_step_;
  Clock::time_point last_shown_;
};

}  // namespace examples
