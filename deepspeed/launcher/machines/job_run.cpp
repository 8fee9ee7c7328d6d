// A start of a job is one loop around poll() (turn), which goes through stages (run):
//
// 1. The runner starts, and scouts go by ssh (roster.h). Each program that these start says Hello over its
//    link (link/messages.h). The link is ssh's standard input and output, or TCP with the job's secret. A
//    program of another version is an error.
// 2. Once all have answered, each is told its ranks. It answers that it has planned them, or why it cannot.
//    Nothing runs until then, so every mistake is an error that leaves nothing behind.
// 3. All ranks start. From then on each end of a link shows once a second that it lives.
// 4. A rank's failure ends the job, and so does a machine that is silent for too long or whose link ends
//    (ending.h). Failures within a moment are compared, since ranks that lose a partner fail as well.
//
// The launcher never waits for another machine without a limit. Ranks that it cannot reach are ended by the
// other end of their link.
#include "deepspeed/launcher/machines/job_run.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include <sys/signalfd.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

using log::Level;
using RunClock = std::chrono::steady_clock;

constexpr int kTurnMs = 200;
constexpr size_t kMostOutput = size_t{4} << 20;  // a machine sends at most a quarter of it ahead (agent.cpp)
constexpr auto kHelloPatience = std::chrono::seconds(60);
constexpr auto kPatienceWithLostHosts = std::chrono::seconds(5);
constexpr auto kPlanPatience = std::chrono::seconds(300);

int seconds_of(std::chrono::milliseconds time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

JobRun::JobRun(const MachineJob& job, const ResourcePool& nodes, int restarts, const BlockedSignals& signals)
    : job_(job),
      nodes_(nodes),
      restarts_(restarts),
      silence_limit_(link_timeout()),
      signal_fd_(::signalfd(-1, &signals.watched(), SFD_NONBLOCK | SFD_CLOEXEC)),
      roster_(job, nodes, signals) {}

JobEnd JobRun::run() {
  roster_.start();
  if (await(Stage::kGreeted)) {
    roster_.dismiss_scouts();
    choose_machines();
    prepare();
    await(Stage::kPlanned);
    if (const std::string fault = plan_fault(roster_.parts()); !fault.empty()) fail(fault, kUsageExitCode);
  }
  if (!ending_.is_stopping()) {
    begin();
    await(Stage::kEnded);
  }
  finish();
  return ending_.end();
}

bool JobRun::await(Stage stage) {
  stage_began_ = RunClock::now();
  while (!roster_.all_reached(stage) || !roster_.scouts_have_answered()) turn();
  return !ending_.is_stopping();
}

/// Keeps the first machines that answer, up to the number that an elastic job's rules allow.
void JobRun::choose_machines() {
  if (ending_.is_stopping() || !job_.choose_machines) return;
  ResourcePool answering;
  for (const Part& part : roster_.parts()) {
    if (part.stage == Stage::kEnded) continue;
    std::copy_if(nodes_.begin(), nodes_.end(), std::back_inserter(answering),
                 [&](const HostSlots& node) { return node.host == part.host; });
  }
  const size_t count = job_.choose_machines(answering);
  if (count == 0) {
    return fail(message(answering.size(),
                        " machines answer, which are too few for --min_elastic_nodes, or fit no number of "
                        "ranks of the config's elasticity section"));
  }
  nodes_.assign(answering.begin(), answering.begin() + static_cast<std::ptrdiff_t>(count));
  size_t kept = 0;
  for (Part& part : roster_.parts()) {
    if (part.stage == Stage::kEnded || kept++ < count) continue;
    part.link->send(Stop{});  // this machine is not needed
    part.stage = Stage::kEnded;
  }
}

void JobRun::prepare() {
  if (ending_.is_stopping()) return;
  Placement placement = places_ranks(job_.args.runner) ? placement_of_ranks(roster_.parts())
                                                       : place_on_machines(roster_.parts(), nodes_);
  nodes_ = placement.nodes;
  address_ = nodes_.size() == 1 ? "127.0.0.1" : placement.address;
  if (!job_.args.master_addr.empty()) address_ = job_.args.master_addr;
  const std::string job = roster_.text_for_links();
  auto next = placement.orders.begin();
  for (Part& part : roster_.parts()) {
    if (part.stage != Stage::kGreeted) continue;
    next->first = next == placement.orders.begin();
    next->job = job;
    next->world = encode_world_info(nodes_);
    next->silence = seconds_of(silence_limit_);
    next->address = address_;
    part.link->send(*next++);
  }
}

void JobRun::begin() {
  ending_.begin_run(nodes_.size());
  announce(Level::kInfo, WorldLayout{nodes_}.world_size(), " ranks start on ", nodes_.size(),
           nodes_.size() == 1 ? " machine" : " machines", "; they meet at ", address_, " port ", port_);
  for (Part& part : roster_.parts()) {
    if (part.stage == Stage::kEnded) continue;
    part.stage = Stage::kRunning;
    part.link->forget_silence();
  }
  roster_.tell_running(Start{address_, port_, restarts_});
}

void JobRun::finish() {
  announce_failure(RunClock::time_point::max());
  while (!roster_.cleaners_are_done()) turn();
  const int signal_before = ending_.signal();
  while (!output_.is_idle() && ending_.signal() == signal_before) turn();
  roster_.end(std::chrono::seconds(ending_.lost_hosts().empty() ? 3 : 1));
}

// --- a turn of the loop ---

void JobRun::turn() {
  wait_for_events();
  take_signals();
  take_messages(roster_.scouts());
  take_guests();
  take_messages(roster_.parts());
  output_.write([&](int number, size_t bytes) {
    for (Part& part : roster_.parts()) {
      if (part.number == number && part.link) part.link->send(Ack{bytes});
    }
  });
  roster_.reap();
  watch_runner();
  beat();
  watch_silence();
  watch_start();
  watch_deadlines();
}

void JobRun::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_.get(), POLLIN, 0}};
  roster_.append_poll_entries(entries);
  output_.append_poll_entries(entries);
  ::poll(entries.data(), entries.size(), kTurnMs);
}

void JobRun::take_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    take_signal(static_cast<int>(info.ssi_signo));
}

void JobRun::take_signal(int number) {
  if (number == SIGCHLD || number == SIGCONT) return;
  if (number == SIGTSTP) return pause();
  roster_.tell_running(Signal{number});
  if (number == SIGUSR1 || number == SIGUSR2) return;
  if (ending_.signal() != 0)
    announce(Level::kWarning, "a second signal (", signal_name(number), "): killing all ranks");
  else
    announce(Level::kWarning, signal_name(number), " received and forwarded to all ranks");
  if (ending_.take_signal(number, RunClock::now())) roster_.stop_all(ending_.has_run());
}

/// Stops the ranks, and this process, at a terminal's Ctrl-Z; `fg` lets all go on.
void JobRun::pause() {
  roster_.tell_running(Signal{SIGTSTP});
  ::raise(SIGSTOP);
  for (Part& part : roster_.parts()) {
    if (part.link) part.link->forget_silence();
  }
  roster_.tell_running(Signal{SIGCONT});
}

void JobRun::take_messages(std::vector<Part>& parts) {
  for (Part& part : parts) {
    if (!part.link) continue;
    try {
      for (const Json& message : part.link->exchange()) take_message(part, message);
    } catch (const MessageError& error) {
      part.stage = std::max(part.stage, Stage::kGreeted);  // it has answered, though wrongly
      part.link->close(error.what());
    }
    if (part.link->is_closed() && part.stage != Stage::kEnded) take_lost(part, part.link->fault());
  }
}

void JobRun::take_message(Part& part, const Json& message) {
  expect_one_of<Hello, Planned, Failed, Stopped, Out, Ended, Beat>(message);
  const std::string host = "host " + part.host + ": ";
  if (const auto hello = as<Hello>(message); hello && part.stage == Stage::kAwaited) {
    part.hello = *hello;
    take_hello(part);
  } else if (const auto planned = as<Planned>(message); planned && part.stage == Stage::kGreeted) {
    part.stage = Stage::kPlanned;
    part.plan = *planned;
    port_ = planned->port.value_or(port_);
  } else if (const auto failed = as<Failed>(message)) {
    fail(host + failed->text, failed->code, failed->details);
  } else if (const auto stopped = as<Stopped>(message)) {
    announce(Level::kWarning, host, stopped->text);
  } else if (auto output = as<Out>(message)) {
    output_.add(part.number, std::move(output->bytes.raw));
    if (output_.waiting_of(part.number) > kMostOutput && part.stage != Stage::kEnded)
      take_lost(part, "it sends more output than it may");
  } else if (const auto ended = as<Ended>(message)) {
    part.stage = Stage::kEnded;
    if (ended->code != 0 && !ending_.is_stopping())
      fail(host + "its ranks ended with exit code " + std::to_string(ended->code), ended->code);
  }
}

void JobRun::take_hello(Part& part) {
  part.stage = Stage::kGreeted;
  if (const std::string fault = version_fault(part, job_.node_program); !fault.empty())
    fail(fault, kUsageExitCode);
}

void JobRun::take_guests() {
  for (Part* part : roster_.take_guests()) {
    take_hello(*part);
    if (!first_guest_) first_guest_ = RunClock::now();
  }
}

void JobRun::beat() {
  const auto now = RunClock::now();
  if (now - last_beat_ < kBeatInterval) return;
  last_beat_ = now;
  for (Part& part : roster_.parts()) {
    const bool listens = part.stage != Stage::kEnded && part.stage != Stage::kAwaited;
    if (part.link && listens) part.link->send(Beat{});
  }
}

// --- delays, losses and failures ---

/// Reports a failure if the runner ended too early. Waits for the scouts first, which show the cause better.
void JobRun::watch_runner() {
  const auto status = roster_.exit_of(roster_.runner());
  if (!status || ending_.is_stopping() || !roster_.scouts_have_answered()) return;
  const std::string end =
      message("--launcher ", name_of(job_.args.runner), " ended with ", status->describe());
  std::vector<std::string> unheard;
  for (const Part& part : roster_.parts()) {
    if (part.stage != Stage::kAwaited) continue;
    unheard.push_back(part.host.empty() ? message("rank ", part.number) : "host " + part.host);
  }
  if (!unheard.empty()) {
    fail(end + " before " + join(unheard, ", ") + " had answered; its errors stand above");
  } else if (!status->success() && !roster_.all_reached(Stage::kEnded)) {
    fail(end + " while ranks were running", status->exit_code());
    roster_.start_cleaner(roster_.parts().front());
  }
}

void JobRun::watch_silence() {
  for (Part& part : roster_.parts()) {
    if (part.stage != Stage::kRunning || part.link->silence() < silence_limit_) continue;
    take_lost(part, message("nothing was heard from it for ", seconds_of(silence_limit_), " s"));
  }
}

void JobRun::watch_start() {
  if (ending_.has_run()) return;
  // Slurm may queue a job for hours, so its time counts from the first answer.
  const bool are_ranks = places_ranks(job_.args.runner);
  const bool waits_for_first = job_.args.runner == Runner::kSlurm && !first_guest_;
  const auto since = RunClock::now() - (are_ranks && first_guest_ ? *first_guest_ : stage_began_);
  for (auto* parts : {&roster_.scouts(), &roster_.parts()}) {
    for (Part& part : *parts) {
      if (ending_.is_stopping()) return;
      const bool was_lost = std::find(job_.doubtful_hosts.begin(), job_.doubtful_hosts.end(), part.host) !=
                            job_.doubtful_hosts.end();
      const auto patience = was_lost ? kPatienceWithLostHosts : kHelloPatience;
      const bool is_late = part.stage == Stage::kAwaited && !waits_for_first && since > patience;
      if (is_late) take_lost(part, "it has not answered");
      if (part.stage == Stage::kGreeted && !address_.empty() && since > kPlanPatience)
        take_lost(part, "it has not planned its ranks");
    }
  }
}

void JobRun::watch_deadlines() {
  const auto now = RunClock::now();
  announce_failure(now);
  if (!ending_.is_overdue(now)) return;
  for (Part& part : roster_.parts()) {
    if (part.stage == Stage::kEnded) continue;
    announce(Level::kWarning, "host ", part.host, " has not ended its ranks in time; its link is cut");
    roster_.start_cleaner(part);
    roster_.give_up(part);
  }
}

/// Treats a machine as lost. An elastic job continues without one that has never answered.
void JobRun::take_lost(Part& part, const std::string& why) {
  const bool had_answered = part.stage != Stage::kAwaited;
  const bool has_run = part.stage == Stage::kRunning;
  if (has_run) roster_.start_cleaner(part);  // its processes may hang
  roster_.give_up(part);
  if (ending_.is_stopping() && !has_run) return;
  ending_.take_lost_host(part.host);
  if (had_answered) return fail(message("host ", part.host, " is lost: ", why));
  const std::string text = reason_of_no_answer(part, why, roster_.exit_of(part.child), job_);
  if (!job_.choose_machines) return fail(text);
  announce(Level::kWarning, text);
  for (Part& other : roster_.parts()) {
    if (other.host == part.host) other.stage = Stage::kEnded;
  }
}

void JobRun::fail(std::string text, int exit_code, std::string details) {
  Failed failure{std::move(text), exit_code, std::move(details)};
  if (ending_.take_failure(std::move(failure), RunClock::now())) roster_.stop_all(ending_.has_run());
}

void JobRun::announce_failure(Ending::Clock::time_point now) {
  if (const auto text = ending_.text_to_announce(now)) announce(Level::kError, *text);
}

}  // namespace deepspeed::launcher
