// Decides how a start of a job ends: which of several failures is the cause, and when to print it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/machines/machine_job.h"

namespace deepspeed::launcher {

/// Collects failures and signals, and decides how a start ends. The caller passes the time.
class Ending {
 public:
  using Clock = std::chrono::steady_clock;

  /// Notes that ranks run, on this number of machines.
  void begin_run(size_t num_machines) { num_machines_ = num_machines; }
  bool has_run() const { return num_machines_ > 0; }

  /// Takes a failure of a rank, a machine or the start. Returns true for the first failure; the caller then
  /// stops everything. A rank's end by a signal, if reported within 0.3 s, replaces the first failure as the
  /// cause, since ranks that lose a partner exit by themselves.
  bool take_failure(Failed failure, Clock::time_point now);

  /// Takes a signal that ends the job. Returns true if everything has to be stopped at once. That is so if no
  /// rank runs yet, and from the second signal on.
  bool take_signal(int number, Clock::time_point now);

  /// Adds a host to lost_hosts(), unless it is there.
  void take_lost_host(const std::string& host);

  /// Returns whether a failure or a signal ends the job.
  bool is_stopping() const { return failure_ || signal_ != 0; }
  /// Returns the first signal, or 0.
  int signal() const { return signal_; }
  const std::vector<std::string>& lost_hosts() const { return lost_hosts_; }

  /// Returns the failure's text when it is time to print it; only once, otherwise nothing.
  std::optional<std::string> text_to_announce(Clock::time_point now);

  /// Returns whether 9 s have passed since processes were asked to stop.
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
