// What this program does, by the messages of link/messages.h:
//
// 1. Hello has been sent. Prepare tells which ranks run here. Errors are found before anything runs anywhere:
//    a missing program or folder, slots without a GPU, a port that is taken, an address that is not this
//    machine's.
// 2. Start forks a supervisor, the parent of the ranks (node/supervisor.h). This process forwards the
//    supervisor's reports to the launcher, and also the ranks' output if the link is ssh's standard input and
//    output.
// 3. Ended follows once no process is left.
//
// Launcher, this program and supervisor watch each other by a message a second. If one ends or hangs, its
// neighbours notice. Then the ranks are killed: by the supervisor if this program has failed, by this program
// if the supervisor or the link has.
#include "deepspeed/launcher/agent/agent.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/node/interpreter.h"
#include "deepspeed/launcher/node/process_tree.h"
#include "deepspeed/launcher/node/supervisor.h"
#include "deepspeed/launcher/plan/resources.h"

namespace deepspeed::launcher {
namespace {

using AgentClock = std::chrono::steady_clock;

constexpr int kAgentPollMs = 200;
constexpr size_t kOutputChunk = 32768;
constexpr size_t kOutputWindow = size_t{1} << 20;  // bytes that the launcher has not written yet
constexpr auto kFailureGrace = std::chrono::seconds(3);
constexpr auto kGoodbyePatience = std::chrono::seconds(10);

}  // namespace

Agent::Agent(Channel link, std::optional<CarriedJob> job, bool relays_output, const BlockedSignals& signals)
    : link_(std::move(link)),
      job_(std::move(job)),
      relays_output_(relays_output),
      signals_(signals),
      signal_fd_(::signalfd(-1, &signals.watched(), SFD_NONBLOCK | SFD_CLOEXEC)) {}

int Agent::run() {
  while (!ended_) {
    wait_for_events();
    try {
      for (const Json& message : link_.exchange()) take_message(message);
    } catch (const MessageError& error) {
      link_.close(error.what());
    }
    take_signals();
    if (!ended_ && !paused_ && link_.silence() > silence_limit_) link_.close("nothing was heard from it");
    if (!ended_ && link_.is_closed()) {
      announce(log::Level::kError, "the launcher is lost: ", link_.fault(),
               "; the ranks of this machine are killed");
      kill_descendants(kKillPatience);
      return 1;
    }
    read_reports();
    pass_output_on();
    reap();
    beat();
    if (kill_at_ && AgentClock::now() > *kill_at_) {
      kill_at_.reset();
      ::kill(supervisor_, SIGTERM);  // a second signal kills all ranks
    }
  }
  // The launcher closes the link once it has read everything.
  leave_at_ = AgentClock::now() + kGoodbyePatience;
  while (!link_.is_closed() && AgentClock::now() < *leave_at_) {
    wait_for_events();
    link_.exchange();
  }
  return 0;
}

void Agent::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_.get(), POLLIN, 0}};
  link_.append_poll_entries(entries);
  if (supervisor_ > 0 && !ended_) {
    entries.push_back({reports_.read_end.get(), POLLIN, 0});
    if (!output_ended_ && unwritten_ < kOutputWindow) entries.push_back({output_.read_end.get(), POLLIN, 0});
  }
  ::poll(entries.data(), entries.size(), kAgentPollMs);
}

void Agent::take_message(const Json& message) {
  expect_one_of<Prepare, Start, Signal, Stop, Ack, Beat>(message);
  if (const auto order = as<Prepare>(message); order && supervisor_ == 0) prepare(*order);
  if (const auto order = as<Start>(message); order && supervisor_ == 0) start(*order);
  if (const auto signal = as<Signal>(message)) take_signal(signal->number);
  if (const auto ack = as<Ack>(message)) unwritten_ -= std::min(unwritten_, ack->bytes);
  if (!as<Stop>(message)) return;
  take_signal(SIGTERM);
  if (supervisor_ > 0) kill_at_ = AgentClock::now() + kFailureGrace;
}

void Agent::take_signal(int number) {
  if (number < 1 || number >= NSIG)
    raise<MessageError>("'signal' has 'number' ", number, ", which is no signal");
  if (number == SIGTSTP || number == SIGCONT) paused_ = number == SIGTSTP;
  if (supervisor_ > 0) {
    ::kill(supervisor_, number);
  } else if (number != SIGTSTP && number != SIGCONT) {
    end(128 + number);
  }
}

void Agent::prepare(const Prepare& order) {
  silence_limit_ = std::chrono::seconds(order.silence);
  try {
    link_.send(plan(order));
    link_.forget_silence();  // sourcing a script may have taken long
  } catch (const std::exception& error) {
    link_.send(Failed{error.what(), exit_code_of(error), ""});
  }
}

Planned Agent::plan(const Prepare& order) {
  if (!job_) job_ = CarriedJob::from_text(order.job);
  std::error_code error;
  std::filesystem::current_path(job_->working_folder, error);
  if (error) {
    raise<IoError>("the folder ", job_->working_folder, " cannot be entered: ", error.message(),
                   "; all machines need the folder that the job is started in");
  }
  const LaunchArgs args = parse_args(job_->words).args;
  log::set_level(args.log_level);
  Environment environment = current_environment();
  if (!args.venv_script.empty())
    environment = source_script(args.venv_script, environment, signals_.before());
  for (const auto& [name, value] : job_->exports) environment[name] = value;
  Machine machine = read_machine();
  if (runs_on_cpu(environment)) machine.num_gpus = 0;
  NodeEnvironment node;
  node.layout.nodes = decode_world_info(order.world);
  node.node = order.node;
  std::vector<RankPlace> places = node.layout.ranks_of(node.node);
  const auto local_rank = static_cast<size_t>(order.local_rank);
  if (local_rank >= places.size())
    raise<MessageError>("'prepare' has 'local_rank' ", order.local_rank, ", of ", places.size(), " ranks");
  node.devices = devices_of(node.layout.nodes[static_cast<size_t>(node.node)], machine);
  if (order.rank) {
    places = {places[local_rank]};
    places.front().rank = *order.rank;
  }
  launch_ = plan_ranks(args, machine, environment, node, places);
  Planned answer;
  answer.has_gpus = !node.devices.empty();
  if (args.runs_python()) answer.python = python_version(launch_.program, environment, signals_.before());
  if (order.first) {
    const PortChoice port = check_meeting(args, order.address);
    launch_.port_claim = port.claim;
    answer.port = port.port;
  }
  return answer;
}

PortChoice Agent::check_meeting(const LaunchArgs& args, const std::string& address) const {
  const bool is_translated = job_->exports.contains("DEEPSPEED_LISTEN_ADDR");
  if (!is_translated && !has_address(address)) {
    raise<UsageError>("--master_addr ", address,
                      " is no address of this machine, on which rank 0 runs; it has ",
                      join(addresses_of_this_machine(), ", "), ". Leave the flag out to have one chosen");
  }
  return choose_master_port(args.master_port, kDefaultMasterPort);
}

void Agent::start(const Start& order) {
  set_meeting(launch_, order.address, order.port);
  for (RankCommand& command : launch_.ranks)
    command.environment["DEEPSPEED_RESTART_COUNT"] = std::to_string(order.restarts);
  launch_.report_fd = reports_.write_end.get();
  launch_.parent_silence = silence_limit_;
  last_report_ = AgentClock::now();
  supervisor_ = ::fork();
  if (supervisor_ < 0) {
    supervisor_ = 0;
    link_.send(Failed{message("no new process: ", std::strerror(errno)), 1, ""});
    return end(1);
  }
  if (supervisor_ == 0) {
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
    if (relays_output_) ::dup2(output_.write_end.get(), STDOUT_FILENO);
    link_.close();
    for (Descriptor* end : {&life_.write_end, &reports_.read_end, &output_.read_end, &output_.write_end})
      end->close();
    make_non_blocking(reports_.write_end.get());
    ::_exit(run_supervisor(launch_, life_.read_end.get(), signals_.watched(), signals_.before()));
  }
  for (Descriptor* end : {&life_.read_end, &reports_.write_end, &output_.write_end}) end->close();
  for (Descriptor* end : {&life_.write_end, &reports_.read_end, &output_.read_end})
    make_non_blocking(end->get());
}

void Agent::take_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGCHLD) take_signal(number);
  }
}

void Agent::read_reports() {
  if (supervisor_ == 0 || ended_) return;
  char bytes[65536];
  for (ssize_t size; (size = ::read(reports_.read_end.get(), bytes, sizeof(bytes))) > 0;)
    report_text_.append(bytes, static_cast<size_t>(size));
  for (size_t end; (end = report_text_.find('\n')) != std::string::npos; report_text_.erase(0, end + 1)) {
    const Json report = Json::parse(report_text_.substr(0, end), nullptr, false);
    if (kind_of(report).empty()) continue;
    last_report_ = AgentClock::now();
    if (!as<Beat>(report)) link_.send(report);
  }
}

void Agent::pass_output_on() {
  if (supervisor_ == 0 || output_ended_) return;
  char bytes[kOutputChunk];
  while (unwritten_ < kOutputWindow) {
    const ssize_t size = ::read(output_.read_end.get(), bytes, sizeof(bytes));
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    output_ended_ = size <= 0;
    if (output_ended_) return;
    unwritten_ += static_cast<size_t>(size);
    link_.send(Out{{std::string(bytes, static_cast<size_t>(size))}});
  }
}

/// Shows both neighbours that this process lives, and fails if the supervisor hangs.
void Agent::beat() {
  const auto now = AgentClock::now();
  if (now - last_beat_ < kBeatInterval) return;
  last_beat_ = now;
  if (supervisor_ > 0 && !supervisor_status_) {
    if (::write(life_.write_end.get(), ".", 1) < 0 && errno != EAGAIN)
      return;  // reap() notices that the supervisor has ended
    if (now - last_report_ > silence_limit_ && !supervisor_hangs_) {
      supervisor_hangs_ = true;
      link_.send(
          Failed{message("the supervisor of the ranks hangs (pid ", supervisor_, ")"), 128 + SIGKILL, ""});
      kill_descendants(kKillPatience);
      return end(128 + SIGKILL);
    }
  }
  link_.send(Beat{});
}

void Agent::reap() {
  if (supervisor_ == 0 || ended_) return;
  int status = 0;
  if (!supervisor_status_ && ::waitpid(supervisor_, &status, WNOHANG) == supervisor_) {
    supervisor_status_ = ExitStatus(status);
    read_reports();
    if (supervisor_status_->signal() != 0) {
      link_.send(Failed{"the supervisor of the ranks was ended by " + supervisor_status_->describe(),
                        supervisor_status_->exit_code(), ""});
    }
    kill_descendants(kKillPatience);
  }
  if (!supervisor_status_) return;
  pass_output_on();
  if (output_ended_ || !relays_output_) end(supervisor_status_->exit_code());
}

void Agent::end(int exit_code) {
  ended_ = true;
  link_.send(Ended{exit_code});
}

}  // namespace deepspeed::launcher
