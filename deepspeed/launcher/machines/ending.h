// How a start of a job comes to its end: which of several failures is the cause, and what is told when.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/machines/machine_job.h"

namespace deepspeed::launcher {

/// Collects failures and signals, and decides from them how a start ends. The caller tells it the time.
class Ending {
 public:
  using Clock = std::chrono::steady_clock;

  /// Tells it that ranks run from now on, on so many machines.
  void begin_run(size_t num_machines) { num_machines_ = num_machines; }
  bool has_run() const { return num_machines_ > 0; }

  /// Takes a failure of a rank, a machine or the start. Returns true for the first one: then everything has
  /// to be stopped. Of failures within a moment, one by a signal counts as the cause, since ranks that lose a
  /// partner exit by themselves.
  bool take_failure(Failed failure, Clock::time_point now);

  /// Takes a signal that ends the job. Returns true if everything has to be stopped at once: if no rank runs
  /// yet, or at the second signal.
  bool take_signal(int number, Clock::time_point now);

  /// Takes a host that is lost.
  void take_lost_host(const std::string& host);

  /// Whether the job ends, by a failure or a signal.
  bool is_stopping() const { return failure_ || signal_ != 0; }
  /// Returns the first signal that was taken, 0 without one.
  int signal() const { return signal_; }
  const std::vector<std::string>& lost_hosts() const { return lost_hosts_; }

  /// Returns what to print of the failure, once, and nothing before its moment is over.
  std::optional<std::string> text_to_announce(Clock::time_point now);

  /// Returns whether what was asked to stop has had its time.
  bool is_overdue(Clock::time_point now) const { return give_up_at_ && now >= *give_up_at_; }

  JobEnd end() const;

 private:
  size_t num_machines_ = 0;
  int signal_ = 0;
  std::optional<Failed> failure_;
  bool is_announced_ = false;
  std::vector<std::string> lost_hosts_;
  std::optional<Clock::time_point> announce_at_, give_up_at_;
};

}  // namespace deepspeed::launcher
