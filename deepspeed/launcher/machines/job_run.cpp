// A start of a job, as one loop around poll() (turn) that is left in stages (run):
//
// 1. The runner is started, with scouts by ssh beside it (job_start.h). Each program that it starts says
//    hello over its link (agent/agent.h): standard input and output of ssh, else TCP with the job's secret.
//    Another version than here is an error.
// 2. Once all have answered, each is told its ranks. It answers that it has planned them, or why it cannot:
//    until then nothing runs, so every mistake is an error without a trace.
// 3. All start. From here on each end shows once a second that it lives.
// 4. The first failure of a rank, and each machine that is silent for too long or whose link ends, ends all
//    (job_end.cpp). Failures that come within a moment are compared: ranks that lose a partner fail as well.
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
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/job_loop.h"
#include "deepspeed/launcher/node/exit_status.h"

namespace deepspeed::launcher {
namespace {

using log::Level;
using RunClock = std::chrono::steady_clock;

constexpr int kTurnMs = 200;
constexpr size_t kMostOutput = size_t{4} << 20;  // a machine keeps within a quarter of it (agent.cpp)

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
    dismiss_scouts();
    choose_machines();
    prepare();
    goes_on = await(Stage::kPlanned);
    if (const auto fault = goes_on ? python_fault(parts_) : std::string(); !fault.empty()) {
      fail({fault, "", 2});
      goes_on = false;
    }
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
  scouts_ = start_.scouts();
  runner_ = start_.start_runner(nodes_);
}

bool JobRun::all_reached(Stage stage) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.stage >= stage; });
}

bool JobRun::scouts_have_answered() const {
  return std::all_of(scouts_.begin(), scouts_.end(),
                     [](const Part& scout) { return scout.stage >= Stage::kGreeted; });
}

bool JobRun::await(Stage stage) {
  stage_began_ = RunClock::now();
  while (!all_reached(stage) || !scouts_have_answered()) turn();
  return !is_stopping();
}

void JobRun::dismiss_scouts() {
  for (Part& scout : scouts_) {
    if (scout.link) scout.link->send({{"t", "stop"}});
  }
  scouts_.clear();  // the programs there end with their links
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
  await_cleaners();
  const int signal_before = signal_;
  while (!output_.is_idle() && signal_ == signal_before) turn();
  std::vector<pid_t> children;
  for (Part& part : parts_) {
    if (part.link) part.link->close();
    children.push_back(part.child.pid);
  }
  dismiss_scouts();
  for (const Cleaner& cleaner : cleaners_) children.push_back(cleaner.child.pid);
  children.push_back(runner_.pid);
  std::erase_if(children, [&](pid_t pid) { return pid <= 0 || exits_.contains(pid); });
  // They end by themselves now that the links are closed, but for a runner that waits for a lost machine.
  end_children(std::move(children), std::chrono::seconds(lost_hosts_.empty() ? 3 : 1));
}

// --- a turn of the loop ---

void JobRun::turn() {
  wait_for_events();
  take_signals();
  take_messages(scouts_);
  take_guests();
  take_messages(parts_);
  output_.write([&](int number, size_t bytes) {
    for (Part& part : parts_) {
      if (part.number == number && part.link) part.link->send({{"t", "ack"}, {"bytes", bytes}});
    }
  });
  reap();
  watch_runner();
  beat();
  watch_silence();
  watch_start();
  watch_deadlines();
}

void JobRun::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_, POLLIN, 0}};
  for (const auto* parts : {&parts_, &scouts_}) {
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
    if (const std::string fault = version_fault(part, job_.node_program); !fault.empty())
      fail({fault, "", 2});
  } else if (kind == "planned" && part.stage == Stage::kGreeted) {
    part.stage = Stage::kPlanned;
    part.python = text_of(message, "python");
    port_ = number_of(message, "port", port_);
  } else if (kind == "refused" || kind == "failed") {
    fail({text, text_of(message, "details"), number_of(message, "code", kLostMachineExitCode)});
  } else if (kind == "stopped") {
    announce(Level::kWarning, text);
  } else if (kind == "out") {
    if (auto bytes = decode_base64(text_of(message, "bytes"))) output_.add(part.number, *std::move(bytes));
    if (output_.waiting_of(part.number) > kMostOutput && part.stage != Stage::kEnded)
      take_lost(part, "it sends more output than it may");
  } else if (kind == "ended") {
    take_end(part, number_of(message, "code", kLostMachineExitCode));
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
    const int number = number_of(guest.hello, key, -1);
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

void JobRun::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) exits_[pid] = ExitStatus(status);
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

JobEnd run_on_machines(const MachineJob& job, const ResourcePool& nodes, int restarts,
                       const BlockedSignals& signals) {
  return JobRun(job, nodes, restarts, signals).run();
}

}  // namespace deepspeed::launcher
