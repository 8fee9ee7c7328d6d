// How a start of a job ends: what counts as a failure or as a loss, which of several failures is the cause,
// and how all that has been started is stopped.
#include <algorithm>
#include <csignal>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/job_loop.h"

namespace deepspeed::launcher {
namespace {

using log::Level;
using EndClock = std::chrono::steady_clock;

constexpr auto kHelloPatience = std::chrono::seconds(60);
constexpr auto kPatienceWithLostHosts = std::chrono::seconds(5);
constexpr auto kPlanPatience = std::chrono::seconds(300);
constexpr auto kSettleTime = std::chrono::milliseconds(300);
constexpr auto kStopPatience = std::chrono::seconds(9);
constexpr auto kCleanerPatience = std::chrono::seconds(3);

bool contains(const std::vector<std::string>& hosts, const std::string& host) {
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

}  // namespace

/// Takes a machine for lost. An elastic job does without one that has never answered.
void JobRun::take_lost(Part& part, const std::string& why) {
  const bool had_answered = part.stage != Stage::kAwaited;
  const bool has_run = part.stage == Stage::kRunning;
  if (has_run) start_cleaner(part);
  give_up_part(part);
  if (is_stopping() && !has_run) return;
  if (!contains(lost_hosts_, part.host)) lost_hosts_.push_back(part.host);
  if (had_answered) return fail({message("host ", part.host, " is lost: ", why), "", kLostMachineExitCode});
  const auto status = exits_.find(part.child.pid);
  const std::string text = reason_of_no_answer(
      part, why, status == exits_.end() ? std::nullopt : std::optional(status->second), job_);
  if (!job_.choose_machines) return fail({text, "", kLostMachineExitCode});
  announce(Level::kWarning, text);
  for (Part& other : parts_) {
    if (other.host == part.host) other.stage = Stage::kEnded;
  }
}

/// Asks for the end of what still runs on a machine that has not done so by itself: its `ds_node` may hang.
void JobRun::start_cleaner(const Part& part) {
  if (places_ranks(job_.args.runner) && !cleaners_.empty()) return;  // one ends the whole job
  if (auto cleaner = start_.start_cleaner(part)) cleaners_.push_back({*cleaner, EndClock::now()});
}

/// Gives each cleaner some seconds: it cannot do anything where the network is gone.
void JobRun::await_cleaners() {
  const auto is_over = [&](const Cleaner& cleaner) {
    return exits_.contains(cleaner.child.pid) || EndClock::now() - cleaner.began > kCleanerPatience;
  };
  while (!std::all_of(cleaners_.begin(), cleaners_.end(), is_over)) turn();
  for (const Cleaner& cleaner : cleaners_) {
    if (!exits_.contains(cleaner.child.pid)) ::kill(-cleaner.child.pid, SIGKILL);
  }
}

void JobRun::give_up_part(Part& part) {
  part.stage = Stage::kEnded;
  if (part.link) part.link->close();
  if (part.child.pid <= 0) return;
  // ssh tells by its exit code what was wrong, if it is about to end.
  for (int i = 0; i < 25 && !exits_.contains(part.child.pid); ++i) {
    reap();
    if (!exits_.contains(part.child.pid)) ::poll(nullptr, 0, 10);
  }
  if (!exits_.contains(part.child.pid)) ::kill(-part.child.pid, SIGKILL);
}

/// Looks whether the runner has ended too early. What the scouts find tells the cause better.
void JobRun::watch_runner() {
  const auto found = exits_.find(runner_.pid);
  if (found == exits_.end() || is_stopping() || !scouts_have_answered()) return;
  const ExitStatus& status = found->second;
  const std::string end =
      message("--launcher ", name_of(job_.args.runner), " ended with ", status.describe());
  std::vector<std::string> unheard;
  for (const Part& part : parts_) {
    if (part.stage != Stage::kAwaited) continue;
    unheard.push_back(part.host.empty() ? message("rank ", part.number) : "host " + part.host);
  }
  if (!unheard.empty()) {
    fail({end + " before " + join(unheard, ", ") + " had answered; its errors stand above", "",
          kLostMachineExitCode});
  } else if (!status.success() && !all_reached(Stage::kEnded)) {
    fail({end + " while ranks were running", "", status.exit_code()});
    start_cleaner(parts_.front());
  }
}

void JobRun::watch_silence() {
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(silence_limit_).count();
  for (Part& part : parts_) {
    if (part.stage != Stage::kRunning || part.link->silence() < silence_limit_) continue;
    take_lost(part, message("nothing was heard from it for ", limit, " s"));
  }
}

void JobRun::watch_start() {
  if (has_run_) return;
  // Slurm may let a job wait for hours: there the time counts from the first answer.
  const bool are_ranks = places_ranks(job_.args.runner);
  const bool waits_for_first = job_.args.runner == Runner::kSlurm && !first_guest_;
  const auto since = EndClock::now() - (are_ranks && first_guest_ ? *first_guest_ : stage_began_);
  for (auto* parts : {&scouts_, &parts_}) {
    for (Part& part : *parts) {
      if (is_stopping()) return;
      const bool was_lost = contains(job_.doubtful_hosts, part.host);
      const auto patience = was_lost ? kPatienceWithLostHosts : kHelloPatience;
      const bool is_late = part.stage == Stage::kAwaited && !waits_for_first && since > patience;
      if (is_late) take_lost(part, "it has not answered");
      if (part.stage == Stage::kGreeted && !address_.empty() && since > kPlanPatience)
        take_lost(part, "it has not planned its ranks");
    }
  }
}

void JobRun::watch_deadlines() {
  const auto now = EndClock::now();
  if (announce_at_ && now > *announce_at_) announce_failure();
  if (!give_up_at_ || now < *give_up_at_) return;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    announce(Level::kWarning, "host ", part.host, " has not ended its ranks in time; its link is cut");
    start_cleaner(part);
    give_up_part(part);
  }
}

void JobRun::fail(Failure failure) {
  if (failure_) {
    // Ranks that lose their partner exit by themselves; a signal is rather the cause.
    const bool is_cause =
        !failure_is_announced_ && has_run_ && failure_->exit_code < 128 && failure.exit_code >= 128;
    if (is_cause) failure_ = std::move(failure);
    return;
  }
  if (signal_ != 0 && failure.exit_code >= 128) return;  // the ranks end by the signal that they were sent
  failure_ = std::move(failure);
  announce_at_ = EndClock::now();
  if (has_run_) *announce_at_ += kSettleTime;
  stop_all();
}

void JobRun::announce_failure() {
  if (!failure_ || failure_is_announced_) return;
  failure_is_announced_ = true;
  const char* outlook = "; nothing was started";
  if (has_run_)
    outlook =
        nodes_.size() > 1 ? "; the ranks of all machines are being stopped" : "; all ranks are being stopped";
  announce(Level::kError, failure_->text, outlook, failure_->details);
}

void JobRun::stop_all() {
  give_up_at_ = EndClock::now() + kStopPatience;
  for (Part& scout : scouts_) scout.stage = Stage::kEnded;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    const bool has_answered = part.link && part.stage != Stage::kAwaited;
    if (has_answered) part.link->send(Stop{});
    if (has_answered && has_run_) continue;
    // Where no rank has started there is nothing to wait for.
    part.stage = Stage::kEnded;
    if (part.link) part.link->close();
    if (!has_answered && part.child.pid > 0 && !exits_.contains(part.child.pid))
      ::kill(-part.child.pid, SIGKILL);
  }
}

}  // namespace deepspeed::launcher
