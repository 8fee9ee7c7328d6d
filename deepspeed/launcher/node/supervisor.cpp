// A launch is one loop around poll() (run):
//
// 1. All ranks are started. If one cannot start, the others are asked to end.
// 2. Each round waits for output, a signal, or the end of the launcher. A signal is forwarded once. SIGCHLD
//    only wakes the loop. Output is copied. Ended processes are collected (reap). A first failure is reported
//    with its rank, and all others are asked to end, since they may wait for that rank for ever.
// 3. Once every rank has ended, processes that they left behind are asked to end too (watch_leftovers).
// 4. Each request to end sets a deadline. After it every round sends SIGKILL to all that is left
//    (enforce_deadline). After some seconds without success the loop gives up on processes stuck in a driver.
//
// If the launcher vanishes, everything is killed at once. In a job over machines the supervisor reports to
// `ds_node` instead of printing. A `ds_node` that is silent for too long counts as hanging, and is killed
// too. One thread does everything, so there are no locks.
#include "deepspeed/launcher/node/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/node/oom_watch.h"
#include "deepspeed/launcher/node/output_relay.h"
#include "deepspeed/launcher/node/process_tree.h"

namespace deepspeed::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using log::Level;

constexpr int kCannotStart = 126;
constexpr int kPollMs = 1000;
constexpr int kStoppingPollMs = 20;
constexpr int kReportingPollMs = 250;
constexpr auto kReportInterval = std::chrono::seconds(1);
constexpr auto kLeftoverGrace = std::chrono::milliseconds(500);

struct RankState {
  int rank = 0;
  pid_t pid = 0;
  std::optional<ExitStatus> status;  ///< set once the rank has ended
  int stopped_by = 0;                ///< the signal that has stopped the rank; 0 while it runs
  Clock::time_point stopped_at;
};

class Supervisor {
 public:
  Supervisor(const NodeLaunch& launch, int launcher_fd, const sigset_t& watched,
             const SignalState& rank_signals)
      : launch_(launch),
        launcher_fd_(launcher_fd),
        rank_signals_(rank_signals),
        signal_fd_(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC)) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int run();

 private:
  void start_ranks();
  void wait_for_events();
  void listen_to_launcher();
  void beat();
  void write_report(const Json& message) const;
  template <Message Kind>
  void report(Kind message) const {
    if (launch_.report_fd >= 0) write_report(to_json(std::move(message)));
  }
  void take_stop(RankState& rank, int number);
  void watch_stopped();
  void take_signals();
  void take_signal(int number);
  void reap();
  void take_failure(const RankState& failed);
  void watch_leftovers();
  void enforce_deadline();
  void ask_all_to_end(int number, Clock::duration grace);
  void signal_all(int number) const;
  bool every_rank_ended() const;
  int end_after_launcher_vanished();
  int give_up();
  std::string summary() const;

  const NodeLaunch& launch_;
  const int launcher_fd_;
  const SignalState rank_signals_;
  const Descriptor signal_fd_;
  std::vector<RankState> ranks_;
  OutputRelay relay_;
  OomWatch oom_watch_;
  int exit_code_ = 0;
  bool no_process_left_ = false;
  bool launcher_vanished_ = false;
  bool paused_ = false;                         // by Ctrl-Z at the user's terminal
  Clock::time_point last_word_ = Clock::now();  // when the launcher last wrote
  Clock::time_point last_beat_;
  bool stop_requested_ = false;  // by a signal to the launcher
  bool leftovers_asked_ = false;
  std::optional<Clock::time_point> deadline_;    // set while stopping: the time for SIGKILL
  std::optional<Clock::time_point> first_kill_;  // the time of the first SIGKILL
};

int Supervisor::run() {
  start_ranks();
  while (!no_process_left_) {
    wait_for_events();
    beat();
    if (launcher_vanished_) return end_after_launcher_vanished();
    take_signals();
    relay_.relay();
    reap();
    watch_stopped();
    watch_leftovers();
    enforce_deadline();
    oom_watch_.refresh();
    if (first_kill_ && Clock::now() > *first_kill_ + kKillPatience) return give_up();
  }
  relay_.drain();
  if (exit_code_ != 0 && launch_.report_fd < 0) announce(Level::kInfo, "all ranks have ended: ", summary());
  return exit_code_;
}

void Supervisor::start_ranks() {
  for (const RankCommand& command : launch_.ranks) {
    try {
      const SpawnedRank spawned = spawn_rank(launch_.program, command, rank_signals_);
      ranks_.push_back({command.rank, spawned.pid, std::nullopt, 0, {}});
      relay_.add(command.rank, spawned.stderr_fd, command.log_file);
      announce(Level::kDebug, "rank ", command.rank, " is process ", spawned.pid);
    } catch (const Error& error) {
      exit_code_ = kCannotStart;
      if (launch_.report_fd < 0) announce(Level::kError, error.what());
      report(Failed{error.what(), exit_code_, ""});
      ask_all_to_end(SIGTERM, launch_.stop_grace);
      return;
    }
  }
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> entries = {{launcher_fd_, POLLIN, 0}, {signal_fd_.get(), POLLIN, 0}};
  relay_.append_poll_entries(entries);
  const int patience = launch_.report_fd < 0 ? kPollMs : kReportingPollMs;
  ::poll(entries.data(), entries.size(), deadline_ ? kStoppingPollMs : patience);
  if (entries[0].revents != 0) listen_to_launcher();
  const auto limit = launch_.parent_silence;
  if (limit.count() == 0 || launcher_vanished_ || Clock::now() - last_word_ < limit) return;
  launcher_vanished_ = true;
  ::kill(::getppid(), SIGKILL);  // the launcher was stopped, or hangs
}

void Supervisor::listen_to_launcher() {
  char bytes[64];
  const ssize_t size = ::read(launcher_fd_, bytes, sizeof(bytes));
  launcher_vanished_ = size == 0;
  if (size > 0) last_word_ = Clock::now();
}

/// Reports once a second that this process lives.
void Supervisor::beat() {
  if (launch_.report_fd < 0 || Clock::now() - last_beat_ < kReportInterval) return;
  last_beat_ = Clock::now();
  report(Beat{});
}

void Supervisor::write_report(const Json& message) const {
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (::write(launch_.report_fd, line.data(), line.size()) < 0)
    announce(Level::kDebug, "a report was lost");  // the reader has gone, which the next round notices
}

void Supervisor::take_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    take_signal(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::take_signal(int number) {
  if (number == SIGCHLD) return;
  if (number == SIGTSTP || number == SIGCONT) {
    paused_ = number == SIGTSTP;
    return signal_all(paused_ ? SIGSTOP : SIGCONT);
  }
  if (number == SIGUSR1 || number == SIGUSR2) {
    for (const RankState& rank : ranks_) {
      if (!rank.status) ::kill(rank.pid, number);
    }
    return;
  }
  if (stop_requested_) {
    if (launch_.report_fd < 0)
      announce(Level::kWarning, "a second signal (", signal_name(number), "): killing all ranks");
    deadline_ = Clock::now();
    return;
  }
  stop_requested_ = true;
  if (launch_.report_fd < 0)
    announce(Level::kWarning, signal_name(number), " received and forwarded to all ranks");
  if (deadline_) return;  // the ranks are ending already, after a failure
  exit_code_ = 128 + number;
  ask_all_to_end(number, launch_.signal_grace);
}

void Supervisor::reap() {
  const RankState* failed = nullptr;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid < 0 && errno == ECHILD) no_process_left_ = true;
    if (pid <= 0) break;
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const RankState& r) { return r.pid == pid; });
    if (rank == ranks_.end()) continue;  // an adopted orphan
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      take_stop(*rank, WIFSTOPPED(status) ? WSTOPSIG(status) : 0);
      continue;
    }
    rank->status = ExitStatus(status);
    if (rank->status->success()) continue;
    // If several ranks ended since the last look, a signal is more likely the cause than an exit code: ranks
    // that lose a partner exit by themselves.
    const bool better = failed == nullptr || (failed->status->signal() == 0 && rank->status->signal() != 0);
    if (better) failed = &*rank;
  }
  if (failed == nullptr) return;
  if (!deadline_) return take_failure(*failed);
  // The others may wait for this rank for ever.
  deadline_ = std::min(*deadline_, Clock::now() + launch_.stop_grace);
}

/// Reports a rank that somebody has stopped, since the others wait for it.
void Supervisor::take_stop(RankState& rank, int number) {
  rank.stopped_by = paused_ ? 0 : number;
  rank.stopped_at = Clock::now();
  if (number == 0 || paused_ || deadline_) return;
  const std::string text =
      message("rank ", rank.rank, " (pid ", rank.pid, ") was stopped by ", signal_name(number),
              "; the other ranks wait for it until `kill -CONT ", rank.pid, "`");
  if (launch_.report_fd < 0) announce(Level::kWarning, text);
  report(Stopped{text});
}

/// Ends a job over machines if a stopped rank does not continue within NodeLaunch::parent_silence.
void Supervisor::watch_stopped() {
  const auto limit = launch_.parent_silence;
  if (limit.count() == 0 || deadline_) return;
  for (const RankState& rank : ranks_) {
    if (rank.status || rank.stopped_by == 0 || Clock::now() - rank.stopped_at < limit) continue;
    exit_code_ = 128 + rank.stopped_by;
    ask_all_to_end(SIGTERM, launch_.stop_grace);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
    report(Failed{message("rank ", rank.rank, " (pid ", rank.pid, ") was stopped by ",
                          signal_name(rank.stopped_by), " and has not gone on for ", seconds, " s"),
                  exit_code_, ""});
    return;
  }
}

void Supervisor::take_failure(const RankState& failed) {
  exit_code_ = failed.status->exit_code();
  ask_all_to_end(SIGTERM, launch_.stop_grace);
  relay_.drain();
  const bool by_signal = failed.status->signal() != 0;
  const std::string text =
      message("rank ", failed.rank, " (pid ", failed.pid, by_signal ? ") was ended by " : ") ended with ",
              failed.status->describe());
  const std::string cause = failed.status->signal() == SIGKILL ? oom_watch_.explain() : "";
  std::string details;
  const auto lines = relay_.last_lines(failed.rank);
  if (!lines.empty())
    details += message("\n  last lines of rank ", failed.rank, ":\n  | ", join(lines, "\n  | "));
  if (launch_.report_fd < 0)
    announce(Level::kError, text, "; the other ranks are being stopped",
             cause.empty() ? "" : "\n  cause: " + cause, details);
  report(Failed{cause.empty() ? text : text + ", " + cause, exit_code_, details});
}

/// Ends processes that the ranks left behind, once every rank has ended.
void Supervisor::watch_leftovers() {
  if (no_process_left_ || leftovers_asked_ || !every_rank_ended()) return;
  leftovers_asked_ = true;
  const auto limit = Clock::now() + kLeftoverGrace;
  if (!deadline_) {
    announce(Level::kDebug, "all ranks have ended; ending the processes that they left behind");
    ask_all_to_end(SIGTERM, kLeftoverGrace);
  }
  deadline_ = std::min(*deadline_, limit);
}

void Supervisor::enforce_deadline() {
  if (!deadline_ || Clock::now() < *deadline_ || no_process_left_) return;
  if (!first_kill_) {
    first_kill_ = Clock::now();
    if (!every_rank_ended())
      announce(Level::kWarning, "ranks that have not ended by themselves are being killed");
  }
  signal_all(SIGKILL);  // repeated, because a killed process may just have started another one
}

void Supervisor::ask_all_to_end(int number, Clock::duration grace) {
  deadline_ = Clock::now() + grace;
  signal_all(number);
  signal_all(SIGCONT);  // a stopped process gets the signal only once it continues
}

/// Signals the process groups of all ranks that live. That reaches children of a shell script. Processes that
/// left their rank's group, or outlived their rank, are signalled one by one.
void Supervisor::signal_all(int number) const {
  std::vector<pid_t> groups;
  for (const RankState& rank : ranks_) {
    if (rank.status) continue;
    groups.push_back(rank.pid);
    ::kill(-rank.pid, number);
  }
  for (const ProcessEntry& process : descendants()) {
    if (std::find(groups.begin(), groups.end(), process.group) == groups.end()) ::kill(process.pid, number);
  }
}

bool Supervisor::every_rank_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankState& rank) { return rank.status.has_value(); });
}

int Supervisor::end_after_launcher_vanished() {
  kill_descendants(kKillPatience);
  if (!launch_.pid_file.empty()) ::unlink(launch_.pid_file.c_str());
  return 128 + SIGKILL;
}

int Supervisor::give_up() {
  relay_.drain();
  std::vector<int> pids;
  for (const ProcessEntry& process : descendants()) pids.push_back(process.pid);
  announce(Level::kError,
           "these processes cannot be killed and are left behind, probably waiting in a driver: ",
           join(pids, ", "));
  return exit_code_ != 0 ? exit_code_ : 128 + SIGKILL;
}

std::string Supervisor::summary() const {
  std::vector<std::string> parts;
  for (const RankState& rank : ranks_) {
    const std::string how = rank.status ? rank.status->describe() : "unknown";
    parts.push_back(message("rank ", rank.rank, " ", how));
  }
  return join(parts, ", ");
}

}  // namespace

int run_supervisor(const NodeLaunch& launch, int launcher_fd, const sigset_t& watched,
                   const SignalState& rank_signals) noexcept {
  try {
    // A session of its own keeps a terminal's signals, and a SIGKILL to the launcher's process group, away
    // from it. A name of its own protects it from `killall deepspeed`.
    ::setsid();
    ::prctl(PR_SET_NAME, "ds_supervisor");
    ::signal(SIGPIPE, SIG_IGN);
    become_subreaper();
    return Supervisor(launch, launcher_fd, watched, rank_signals).run();
  } catch (const std::exception& error) {
    announce(Level::kError, "the supervisor of the ranks failed: ", error.what());
    try {
      kill_descendants(kKillPatience);
    } catch (const std::exception&) {
      return kCannotStart;  // this process ends, and the kernel kills the ranks with it
    }
    return kCannotStart;
  }
}

}  // namespace deepspeed::launcher
