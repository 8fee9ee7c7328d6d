// A start of a job, as one loop around poll() (turn) that is left in stages (run):
//
// 1. The runner is started (job_start.h). Each program that it starts says hello over its link
//    (agent/agent.h): standard input and output of ssh, else TCP with the job's secret.
// 2. Once all have answered, versions are compared, and each is told its ranks. It answers that it has
// planned
//    them, or why it cannot: until then nothing runs, so every mistake is an error without a trace.
// 3. All start. From here on each end shows once a second that it lives.
// 4. The first failure of a rank, and each machine that is silent for too long or whose link ends, ends all.
//    Failures that come within a moment are compared, since ranks that lose a partner fail as well.
//
// Processes of other machines are never waited for without a limit. Their own end of the link sees to their
// ranks where this process cannot.
#include "deepspeed/launcher/machines/job_run.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <utility>

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/base64.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/job_loop.h"
#include "deepspeed/launcher/node/exit_status.h"

namespace deepspeed::launcher {
namespace {

using log::Level;
using RunClock = std::chrono::steady_clock;

constexpr int kTurnMs = 200;
constexpr auto kHelloPatience = std::chrono::seconds(60);
constexpr auto kPlanPatience = std::chrono::seconds(300);
constexpr auto kSettleTime = std::chrono::milliseconds(300);
constexpr auto kStopPatience = std::chrono::seconds(9);

}  // namespace

JobRun::JobRun(const MachineJob& job, const ResourcePool& nodes, int restarts, const BlockedSignals& signals)
    : job_(job),
      nodes_(nodes),
      restarts_(restarts),
      silence_limit_(link_timeout()),
      signal_fd_(::signalfd(-1, &signals.watched(), SFD_NONBLOCK | SFD_CLOEXEC)),
      start_(job, nodes, signals) {}

JobRun::~JobRun() { ::close(signal_fd_); }

JobEnd JobRun::run() {
  start();
  bool goes_on = await(Stage::kGreeted);
  if (goes_on) {
    deposits_.clear();  // their programs end with their links
    check_versions(parts_);
    choose_machines();
    prepare();
    goes_on = await(Stage::kPlanned);
  }
  if (goes_on) {
    begin();
    await(Stage::kEnded);
  }
  finish();
  JobEnd end{failure_ ? failure_->exit_code : 0, has_run_ && failure_ && signal_ == 0, lost_hosts_};
  if (signal_ != 0) end.exit_code = 128 + signal_;
  return end;
}

void JobRun::start() {
  parts_ = start_.parts();
  if (start_.listener() == nullptr) return;
  deposits_ = start_.deposits();
  const auto has_answered = [](const Part& part) { return part.stage >= Stage::kGreeted; };
  while (!is_stopping() && !std::all_of(deposits_.begin(), deposits_.end(), has_answered)) turn();
  if (!is_stopping()) check_versions(deposits_);
  if (is_stopping()) return;
  // Hosts of an elastic job that do not answer are dropped: pdsh must not wait for them.
  ResourcePool nodes = nodes_;
  std::erase_if(nodes, [&](const HostSlots& node) {
    return std::find(lost_hosts_.begin(), lost_hosts_.end(), node.host) != lost_hosts_.end();
  });
  std::erase_if(parts_, [](const Part& part) { return part.stage == Stage::kEnded; });
  if (!places_ranks(job_.args.runner)) {
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i].number = static_cast<int>(i);
  }
  if (!nodes.empty()) runner_ = start_.start_runner(nodes);
}

bool JobRun::all_reached(Stage stage) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.stage >= stage; });
}

bool JobRun::await(Stage stage) {
  stage_began_ = RunClock::now();
  while (!all_reached(stage)) turn();
  return !is_stopping();
}

void JobRun::check_versions(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (is_stopping() || part.stage == Stage::kEnded) continue;
    const std::string fault = version_fault(part, job_.node_program);
    if (!fault.empty()) fail({fault, "", 2});
  }
}

/// In an elastic job, keeps as many of the machines that answer as the rules allow, from the top.
void JobRun::choose_machines() {
  if (is_stopping() || !job_.choose_machines) return;
  ResourcePool answering;
  for (const Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    std::copy_if(nodes_.begin(), nodes_.end(), std::back_inserter(answering),
                 [&](const HostSlots& node) { return node.host == part.host; });
  }
  const size_t count = job_.choose_machines(answering);
  if (count == 0) {
    return fail({message(answering.size(),
                         " machines answer, which are too few for --min_elastic_nodes, or fit no number of "
                         "ranks of the config's elasticity section"),
                 "", kLostMachineExitCode});
  }
  nodes_.assign(answering.begin(), answering.begin() + static_cast<std::ptrdiff_t>(count));
  size_t kept = 0;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded || kept++ < count) continue;
    part.link->send({{"t", "stop"}});  // it is not needed this time
    part.stage = Stage::kEnded;
  }
}

void JobRun::prepare() {
  if (is_stopping()) return;
  const Placement placement =
      places_ranks(job_.args.runner) ? placement_of_ranks(parts_) : place_on_machines(parts_, nodes_);
  nodes_ = placement.nodes;
  address_ = nodes_.size() == 1 ? "127.0.0.1" : placement.address;
  if (!job_.args.master_addr.empty()) address_ = job_.args.master_addr;
  const std::string job = start_.text_for_links();
  auto next = placement.messages.begin();
  for (Part& part : parts_) {
    if (part.stage != Stage::kGreeted) continue;
    Json message = *next;
    message["t"] = "prepare";
    message["job"] = job;
    message["world"] = encode_world_info(nodes_);
    message["silence"] = std::chrono::duration_cast<std::chrono::seconds>(silence_limit_).count();
    message["first"] = next++ == placement.messages.begin();
    message["address"] = address_;
    part.link->send(message);
  }
}

void JobRun::begin() {
  has_run_ = true;
  announce(Level::kInfo, WorldLayout{nodes_}.world_size(), " ranks start on ", nodes_.size(),
           nodes_.size() == 1 ? " machine" : " machines", "; they meet at ", address_, " port ", port_);
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    part.stage = Stage::kRunning;
    part.link->forget_silence();
  }
  tell_running({{"t", "start"}, {"address", address_}, {"port", port_}, {"restarts", restarts_}});
}

void JobRun::finish() {
  announce_failure();
  const int signal_before = signal_;
  while (!output_.is_idle() && signal_ == signal_before) turn();
  std::vector<pid_t> children;
  for (Part& part : parts_) {
    if (part.link) part.link->close();
    children.push_back(part.child.pid);
  }
  deposits_.clear();
  children.push_back(runner_.pid);
  std::erase_if(children, [&](pid_t pid) { return pid <= 0 || exits_.contains(pid); });
  end_children(std::move(children));  // they end by themselves now that the links are closed
}

// --- a turn of the loop ---

void JobRun::turn() {
  wait_for_events();
  take_signals();
  take_messages(deposits_);
  take_guests();
  take_messages(parts_);
  output_.write([&](int number, size_t bytes) {
    for (Part& part : parts_) {
      if (part.number == number && part.link) part.link->send({{"t", "ack"}, {"bytes", bytes}});
    }
  });
  reap();
  beat();
  watch_silence();
  watch_start();
  watch_deadlines();
}

void JobRun::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_, POLLIN, 0}};
  for (const auto* parts : {&parts_, &deposits_}) {
    for (const Part& part : *parts) {
      if (part.link) part.link->append_poll_entries(entries);
    }
  }
  if (start_.listener() != nullptr) start_.listener()->append_poll_entries(entries);
  output_.append_poll_entries(entries);
  ::poll(entries.data(), entries.size(), kTurnMs);
}

void JobRun::take_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    take_signal(static_cast<int>(info.ssi_signo));
}

void JobRun::take_signal(int number) {
  if (number == SIGCHLD || number == SIGCONT) return;
  if (number == SIGTSTP) return pause();
  tell_running({{"t", "signal"}, {"number", number}});
  if (number == SIGUSR1 || number == SIGUSR2) return;
  if (signal_ != 0) {
    announce(Level::kWarning, "a second signal (", signal_name(number), "): killing all ranks");
    return stop_all();
  }
  signal_ = number;
  announce(Level::kWarning, signal_name(number), " received and forwarded to all ranks");
  if (!has_run_) stop_all();
}

/// Stops the ranks, and this process, at a terminal's Ctrl-Z; `fg` lets all go on.
void JobRun::pause() {
  tell_running({{"t", "pause"}});
  ::raise(SIGSTOP);
  for (Part& part : parts_) {
    if (part.link) part.link->forget_silence();
  }
  tell_running({{"t", "resume"}});
}

void JobRun::take_messages(std::vector<Part>& parts) {
  for (Part& part : parts) {
    if (!part.link) continue;
    for (const Json& message : part.link->exchange()) take_message(part, message);
    if (part.link->is_closed() && part.stage != Stage::kEnded) take_lost(part, "its connection ended");
  }
}

void JobRun::take_message(Part& part, const Json& message) {
  const std::string kind = text_of(message, "t");
  const std::string text = "host " + part.host + ": " + text_of(message, "text");
  if (kind == "hello" && part.stage == Stage::kAwaited) {
    part.hello = message;
    part.stage = Stage::kGreeted;
  } else if (kind == "planned" && part.stage == Stage::kGreeted) {
    part.stage = Stage::kPlanned;
    port_ = message.value("port", port_);
  } else if (kind == "refused" || kind == "failed") {
    fail({text, text_of(message, "details"), message.value("code", kLostMachineExitCode)});
  } else if (kind == "stopped") {
    announce(Level::kWarning, text);
  } else if (kind == "out") {
    if (auto bytes = config::decode_base64(text_of(message, "bytes")))
      output_.add(part.number, *std::move(bytes));
  } else if (kind == "ended") {
    take_end(part, message.value("code", kLostMachineExitCode));
  }
}

void JobRun::take_end(Part& part, int exit_code) {
  part.stage = Stage::kEnded;
  if (exit_code == 0 || is_stopping()) return;
  fail({message("host ", part.host, ": its ranks ended with exit code ", exit_code), "", exit_code});
}

void JobRun::take_guests() {
  if (start_.listener() == nullptr) return;
  const char* key = places_ranks(job_.args.runner) ? "rank" : "node";
  for (LinkListener::Guest& guest : start_.listener()->accept()) {
    const int number = guest.hello.value(key, -1);
    const auto part =
        std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.number == number; });
    if (part == parts_.end() || part->link || part->stage != Stage::kAwaited) continue;  // its link ends here
    part->link = std::move(guest.channel);
    part->address = guest.address;
    if (part->host.empty()) part->host = text_of(guest.hello, "host");
    take_message(*part, guest.hello);
    if (!first_guest_) first_guest_ = RunClock::now();
  }
}

/// Takes a machine for lost. An elastic job does without one that has never answered.
void JobRun::take_lost(Part& part, const std::string& why) {
  const bool had_answered = part.stage != Stage::kAwaited;
  const bool has_run = part.stage == Stage::kRunning;
  give_up_part(part);
  if (is_stopping() && !has_run) return;
  if (std::find(lost_hosts_.begin(), lost_hosts_.end(), part.host) == lost_hosts_.end())
    lost_hosts_.push_back(part.host);
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

void JobRun::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    exits_[pid] = ExitStatus(status);
    if (pid == runner_.pid) take_runner_end(ExitStatus(status));
  }
}

void JobRun::take_runner_end(const ExitStatus& status) {
  if (is_stopping()) return;
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
  }
}

void JobRun::beat() {
  const auto now = RunClock::now();
  if (now - last_beat_ < kBeatInterval) return;
  last_beat_ = now;
  for (Part& part : parts_) {
    const bool listens = part.stage != Stage::kEnded && part.stage != Stage::kAwaited;
    if (part.link && listens) part.link->send({{"t", "beat"}});
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
  const auto since = RunClock::now() - (are_ranks && first_guest_ ? *first_guest_ : stage_began_);
  for (auto* parts : {&deposits_, &parts_}) {
    if (parts == &parts_ && start_.listener() != nullptr && runner_.pid == 0) continue;
    for (Part& part : *parts) {
      if (is_stopping()) return;
      const bool is_late = part.stage == Stage::kAwaited && !waits_for_first && since > kHelloPatience;
      if (is_late) take_lost(part, "it has not answered");
      if (part.stage == Stage::kGreeted && !address_.empty() && since > kPlanPatience)
        take_lost(part, "it has not planned its ranks");
    }
  }
}

void JobRun::watch_deadlines() {
  const auto now = RunClock::now();
  if (announce_at_ && now > *announce_at_) announce_failure();
  if (!give_up_at_ || now < *give_up_at_) return;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    announce(Level::kWarning, "host ", part.host, " has not ended its ranks in time; its link is cut");
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
  announce_at_ = RunClock::now();
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
  give_up_at_ = RunClock::now() + kStopPatience;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    if (part.link && part.stage != Stage::kAwaited) {
      part.link->send({{"t", "stop"}});
      continue;
    }
    part.stage = Stage::kEnded;
    if (part.link) part.link->close();
    if (part.child.pid > 0 && !exits_.contains(part.child.pid)) ::kill(-part.child.pid, SIGKILL);
  }
}

JobEnd run_on_machines(const MachineJob& job, const ResourcePool& nodes, int restarts,
                       const BlockedSignals& signals) {
  return JobRun(job, nodes, restarts, signals).run();
}

}  // namespace deepspeed::launcher
