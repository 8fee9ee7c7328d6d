// The life of a machine's part in a job.
//
// 1. hello: the program says its version, its machine and its number.
// 2. prepare: the launcher, which has heard all machines by then, says which ranks run here. What can go
//    wrong is found now, before anything runs anywhere: a missing program or folder, slots without a GPU, a
//    port that is taken, an address that is not this machine's. The answer is planned or refused.
// 3. start: where the ranks meet. A supervisor is forked, the parent of the ranks (node/supervisor.h); this
//    process passes its reports, and the ranks' output where the link is ssh's, on to the launcher.
// 4. ended, with the exit code, once no process is left.
//
// Three processes watch each other by messages once a second: launcher, this program, supervisor. Whichever
// ends or hangs, those on both sides notice, and the ranks are killed: by the supervisor where this program
// is at fault, by this program where the supervisor or the link is.
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
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/agent/plan_ranks.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/node/process_tree.h"
#include "deepspeed/launcher/node/supervisor.h"
#include "deepspeed/launcher/plan/program.h"
#include "deepspeed/launcher/plan/resources.h"

namespace deepspeed::launcher {
namespace {

using AgentClock = std::chrono::steady_clock;

constexpr int kAgentPollMs = 200;
constexpr size_t kOutputChunk = 32768;
constexpr size_t kOutputWindow = size_t{1} << 20;  // bytes that the launcher has not written yet
constexpr auto kFailureGrace = std::chrono::seconds(3);
constexpr auto kGoodbyePatience = std::chrono::seconds(10);

void set_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

AgentPipe::AgentPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) raise<IoError>("no pipe: ", std::strerror(errno));
  read_end = ends[0];
  write_end = ends[1];
}

Agent::Agent(Channel link, std::optional<CarriedJob> job, bool relays_output, const BlockedSignals& signals)
    : link_(std::move(link)),
      job_(std::move(job)),
      relays_output_(relays_output),
      signals_(signals),
      signal_fd_(::signalfd(-1, &signals.watched(), SFD_NONBLOCK | SFD_CLOEXEC)) {}

Agent::~Agent() { ::close(signal_fd_); }

int Agent::run() {
  while (!ended_) {
    wait_for_events();
    for (const Json& message : link_.exchange()) take_message(message);
    take_signals();
    if (!ended_ && link_.is_closed()) return end_of_lost_link("the link to the launcher ended");
    if (!ended_ && !paused_ && link_.silence() > silence_limit_)
      return end_of_lost_link("nothing was heard from the launcher");
    read_reports();
    pass_output_on();
    reap();
    beat();
    if (kill_at_ && AgentClock::now() > *kill_at_) {
      kill_at_.reset();
      ::kill(supervisor_, SIGTERM);  // the second signal: all ranks are killed
    }
  }
  // The launcher closes the link once it has all that was said.
  leave_at_ = AgentClock::now() + kGoodbyePatience;
  while (!link_.is_closed() && AgentClock::now() < *leave_at_) {
    wait_for_events();
    link_.exchange();
  }
  return 0;
}

void Agent::wait_for_events() {
  std::vector<pollfd> entries = {{signal_fd_, POLLIN, 0}};
  link_.append_poll_entries(entries);
  if (supervisor_ > 0 && !ended_) {
    entries.push_back({reports_.read_end, POLLIN, 0});
    if (!output_ended_ && unwritten_ < kOutputWindow) entries.push_back({output_.read_end, POLLIN, 0});
  }
  ::poll(entries.data(), entries.size(), kAgentPollMs);
}

void Agent::take_message(const Json& message) {
  const std::string kind = message.at("t");
  if (kind == "prepare") return prepare(message);
  if (kind == "start" && supervisor_ == 0) return start(message);
  if (kind == "signal") return stop(message.value("number", SIGTERM));
  if (kind == "stop") {
    stop(SIGTERM);
    if (supervisor_ > 0) kill_at_ = AgentClock::now() + kFailureGrace;
  }
  if (kind == "ack") unwritten_ -= std::min(unwritten_, message.value("bytes", size_t{0}));
  if (kind == "pause" || kind == "resume") {
    paused_ = kind == "pause";
    if (supervisor_ > 0) ::kill(supervisor_, paused_ ? SIGTSTP : SIGCONT);
  }
}

void Agent::stop(int number) {
  if (supervisor_ == 0) return end(128 + number);
  ::kill(supervisor_, number);
}

void Agent::prepare(const Json& message) {
  const auto refuse = [&](const std::exception& error, int code) {
    link_.send({{"t", "refused"}, {"text", error.what()}, {"code", code}});
  };
  try {
    silence_limit_ = std::chrono::seconds(message.at("silence").get<int>());
    plan(message);
    link_.forget_silence();  // sourcing a script takes its time
  } catch (const ProgramError& error) {
    refuse(error, error.exit_code());
  } catch (const UsageError& error) {
    refuse(error, 2);
  } catch (const std::exception& error) {
    refuse(error, 1);
  }
}

void Agent::plan(const Json& message) {
  if (!job_) job_ = CarriedJob::from_text(message.at("job"));
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
  const auto accelerator = environment.find("DS_ACCELERATOR");
  const bool on_cpu = accelerator != environment.end() && accelerator->second == "cpu";
  if (on_cpu) machine.num_gpus = 0;
  NodeEnvironment node;
  node.layout.nodes = decode_world_info(message.at("world"));
  node.node = message.at("node");
  const HostSlots& here = node.layout.nodes.at(static_cast<size_t>(node.node));
  node.devices = devices_of(here, machine);
  if (args.num_ranks_means_gpus && node.devices.empty() && !on_cpu)
    raise<UsageError>("--num_gpus, but this machine has no GPU; --num_procs runs the ranks on the CPU");
  std::vector<RankPlace> places = node.layout.ranks_of(node.node);
  if (message.contains("rank")) {
    const int local_rank = message.at("local_rank");
    places = {{message.at("rank"), local_rank, here.slots.at(static_cast<size_t>(local_rank))}};
  }
  launch_ = plan_ranks(args, machine, environment, node, places);
  Json answer = {{"t", "planned"}};
  if (args.runs_python()) answer["python"] = python_version(launch_.program, environment, signals_.before());
  if (message.value("first", false)) {
    const PortChoice port = check_meeting(args, message);
    launch_.port_claim = port.claim;
    answer["port"] = port.port;
  }
  link_.send(answer);
}

PortChoice Agent::check_meeting(const LaunchArgs& args, const Json& message) const {
  const std::string address = message.at("address");
  const bool is_translated = job_->exports.contains("DEEPSPEED_LISTEN_ADDR");
  if (!is_translated && !has_address(address)) {
    raise<UsageError>("--master_addr ", address,
                      " is no address of this machine, on which rank 0 runs; it has ",
                      join(addresses_of_this_machine(), ", "), ". Leave the flag out to have one chosen");
  }
  return choose_master_port(args.master_port, kDefaultMasterPort);
}

void Agent::start(const Json& message) {
  set_meeting(launch_, message.at("address"), message.at("port"));
  for (RankCommand& command : launch_.ranks)
    command.environment["DEEPSPEED_RESTART_COUNT"] = std::to_string(message.value("restarts", 0));
  launch_.report_fd = reports_.write_end;
  launch_.parent_silence = silence_limit_;
  last_report_ = AgentClock::now();
  supervisor_ = ::fork();
  if (supervisor_ < 0) {
    supervisor_ = 0;
    link_.send(
        {{"t", "failed"}, {"code", 1}, {"text", std::string("no new process: ") + std::strerror(errno)}});
    return end(1);
  }
  if (supervisor_ == 0) {
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
    if (relays_output_) ::dup2(output_.write_end, STDOUT_FILENO);
    link_.close();
    life_.close_write();
    reports_.close_read();
    output_.close_read();
    output_.close_write();
    set_non_blocking(reports_.write_end);
    ::_exit(run_supervisor(launch_, life_.read_end, signals_.watched(), signals_.before()));
  }
  life_.close_read();
  reports_.close_write();
  output_.close_write();
  set_non_blocking(life_.write_end);
  set_non_blocking(reports_.read_end);
  set_non_blocking(output_.read_end);
}

void Agent::take_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGCHLD) stop(number);
  }
}

void Agent::read_reports() {
  if (supervisor_ == 0 || ended_) return;
  char bytes[65536];
  for (ssize_t size; (size = ::read(reports_.read_end, bytes, sizeof(bytes))) > 0;)
    report_text_.append(bytes, static_cast<size_t>(size));
  for (size_t end; (end = report_text_.find('\n')) != std::string::npos; report_text_.erase(0, end + 1)) {
    const Json report = Json::parse(report_text_.substr(0, end), nullptr, false);
    if (report.is_object()) take_report(report);
  }
}

void Agent::take_report(const Json& report) {
  last_report_ = AgentClock::now();
  if (report.value("t", "") != "beat") link_.send(report);
}

void Agent::pass_output_on() {
  if (supervisor_ == 0 || output_ended_) return;
  char bytes[kOutputChunk];
  while (unwritten_ < kOutputWindow) {
    const ssize_t size = ::read(output_.read_end, bytes, sizeof(bytes));
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    output_ended_ = size <= 0;
    if (output_ended_) return;
    unwritten_ += static_cast<size_t>(size);
    link_.send({{"t", "out"}, {"bytes", encode_base64({bytes, static_cast<size_t>(size)})}});
  }
}

/// Shows both neighbours that this process lives; the launcher also that the supervisor does.
void Agent::beat() {
  const auto now = AgentClock::now();
  if (now - last_beat_ < kBeatInterval) return;
  last_beat_ = now;
  if (supervisor_ > 0 && !supervisor_status_) {
    if (::write(life_.write_end, ".", 1) < 0 && errno != EAGAIN) return;  // reap() notices its end
    if (now - last_report_ > silence_limit_ && !supervisor_hangs_) {
      supervisor_hangs_ = true;
      link_.send({{"t", "failed"},
                  {"code", 128 + SIGKILL},
                  {"text", "the supervisor of the ranks hangs (pid " + std::to_string(supervisor_) + ")"}});
      kill_descendants(kKillPatience);
      return end(128 + SIGKILL);
    }
  }
  link_.send({{"t", "beat"}});
}

void Agent::reap() {
  if (supervisor_ == 0 || ended_) return;
  int status = 0;
  if (!supervisor_status_ && ::waitpid(supervisor_, &status, WNOHANG) == supervisor_) {
    supervisor_status_ = ExitStatus(status);
    read_reports();
    if (supervisor_status_->signal() != 0) {
      link_.send({{"t", "failed"},
                  {"code", supervisor_status_->exit_code()},
                  {"text", "the supervisor of the ranks was ended by " + supervisor_status_->describe()}});
    }
    kill_descendants(kKillPatience);
  }
  if (!supervisor_status_) return;
  pass_output_on();
  if (output_ended_ || !relays_output_) end(supervisor_status_->exit_code());
}

void Agent::end(int exit_code) {
  ended_ = true;
  link_.send({{"t", "ended"}, {"code", exit_code}});
}

int Agent::end_of_lost_link(const char* why) {
  announce(log::Level::kError, why, "; the ranks of this machine are killed");
  kill_descendants(kKillPatience);
  return 1;
}

}  // namespace deepspeed::launcher
