// Counts training samples per second: DeepSpeed's timers.throughput.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace deepspeed::profile {

struct SampleRates {
  double average = 0.0;  // samples per second since the first steps
  double current = 0.0;  // since the last read()
};

/// Measures samples per second from the end of the second update, without the slow first steps. Time between
/// pause() and resume() is excluded too.
class Throughput {
 public:
  /// Makes a counter. synchronized: a measured span waits for the device at both ends. Otherwise work that
  /// the device has not finished counts as done. Of the end_step() calls only the second waits.
  explicit Throughput(bool synchronized) : synchronized_(synchronized) {}

  /// Records that an update of `samples` has ended.
  void end_step(int64_t samples);
  void pause();
  void resume();
  /// Returns the rates; nothing before the third update.
  std::optional<SampleRates> read();

 private:
  using Clock = std::chrono::steady_clock;
  struct Window {
    double seconds = 0.0;
    int64_t samples = 0;
    double rate() const { return seconds > 0.0 ? static_cast<double>(samples) / seconds : 0.0; }
  };

  Clock::time_point now() const;
  void add_time();

  bool synchronized_;
  int64_t num_steps_ = 0;
  std::optional<Clock::time_point> running_since_;  // nothing: not started, or paused
  Window all_, last_;
};

}  // namespace deepspeed::profile
