// Which processes start here depends on the runner (start):
//
// - ssh: one ssh for each host, whose program has its link from the start.
// - pdsh: pdsh, whose programs connect to this process. A scout on each host brings them the job.
// - MPI, Slurm: one runner, which passes the job on in variables. Its programs connect, one for each rank.
//   Scouts look whether hosts answer, if that is asked for.
//
// At the end the links are closed, which ends the programs. Cleaners end what hangs (start_cleaner).
#include "deepspeed/launcher/machines/roster.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kCleanerPatience = std::chrono::seconds(3);

}  // namespace

Roster::Roster(const MachineJob& job, const ResourcePool& nodes, const BlockedSignals& signals)
    : job_(job),
      nodes_(nodes),
      signals_(signals),
      id_(hex(random_bytes(12))),
      store_secret_(hex(random_bytes(32))) {
  if (job_.args.runner == Runner::kSsh) return;
  secret_ = random_bytes(32);
  listener_ = std::make_unique<LinkListener>(secret_);
}

Roster::~Roster() {
  if (!host_list_.empty()) ::unlink(host_list_.c_str());
}

CarriedJob Roster::carried_job() const {
  CarriedJob job{job_.words, job_.exports, "", secret_, {}, 0};
  job.exports.emplace("DEEPSPEED_STORE_SECRET", store_secret_);  // the user's own value stays
  char folder[PATH_MAX] = {};
  if (::getcwd(folder, sizeof(folder)) == nullptr)
    raise<IoError>("the folder that the job is started in has no name any more: ", std::strerror(errno));
  job.working_folder = folder;
  if (!listener_) return job;
  job.port = listener_->port();
  job.addresses = addresses_of_this_machine();
  job.addresses.emplace_back("127.0.0.1");
  return job;
}

std::string Roster::text_for_links() const { return listener_ ? "" : carried_job().text(); }

RunnerJob Roster::runner_job() const {
  RunnerJob job;
  job.runner = job_.args.runner;
  job.nodes = nodes_;
  job.runner_args = split_words(job_.args.runner_args, "--launcher_args");
  job.node_program = job_.node_program;
  job.hostfile = job_.hostfile;
  job.host_list = host_list_;
  job.job_id = id_;
  job.ssh_port = job_.args.ssh_port;
  job.slurm_comment = job_.args.slurm_comment;
  return job;
}

Part Roster::part_by_ssh(const HostSlots& node, int number, const std::vector<std::string>& words) const {
  const bool is_here = job_.args.runner == Runner::kSsh && job_.machine.is_this(node.host);
  const auto command = is_here ? words : ssh_command(runner_job(), node.host, words, job_.environment);
  Part part;
  part.host = node.host;
  part.number = number;
  part.child = start_child(command, job_.environment, true, SIGKILL, signals_.before());
  part.link.emplace(std::move(part.child.output), std::move(part.child.input));
  part.link->skip_noise();
  return part;
}

void Roster::start() {
  start_parts();
  if (!listener_) return;
  start_scouts();
  start_runner();
}

void Roster::start_parts() {
  const bool are_ranks = places_ranks(job_.args.runner);
  const int count = are_ranks ? WorldLayout{nodes_}.world_size() : static_cast<int>(nodes_.size());
  for (int number = 0; number < count; ++number) {
    if (!listener_) {
      parts_.push_back(
          part_by_ssh(nodes_[static_cast<size_t>(number)], number, {job_.node_program, "--link"}));
      continue;
    }
    Part& part = parts_.emplace_back();
    part.number = number;
    if (!are_ranks) part.host = nodes_[static_cast<size_t>(number)].host;
  }
}

void Roster::start_scouts() {
  const bool brings_job = job_.args.runner == Runner::kPdsh;
  const std::string text = brings_job ? carried_job().text() : "";
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int number = static_cast<int>(i);
    if (brings_job) {
      const std::vector<std::string> words = {job_.node_program, "--deposit",
                                              id_ + "n" + std::to_string(number)};
      scouts_.push_back(part_by_ssh(nodes_[i], number, words));
      scouts_.back().link->send(DepositJob{text});
    } else if (job_.checks_hosts && !job_.machine.is_this(nodes_[i].host)) {
      scouts_.push_back(part_by_ssh(nodes_[i], number, {job_.node_program, "--link"}));
    }
  }
}

void Roster::start_runner() {
  if (job_.args.runner == Runner::kMvapich) write_host_list();
  RunnerJob runner = runner_job();
  Environment environment = job_.environment;
  if (places_ranks(runner.runner)) {
    // Variables from the user's files apply to programs of MPI from their start.
    for (const auto& [name, value] : job_.exports) environment[name] = value;
    std::erase_if(environment, [](const auto& variable) { return is_job_variable(variable.first); });
    for (const auto& [name, value] : job_variables(carried_job())) {
      environment[name] = value;
      runner.variables.push_back(name);
    }
  }
  for (const auto& [name, value] : runner_variables(runner, environment)) {
    environment[name] = value;
    runner.variables.push_back(name);
  }
  const auto words = runner_command(runner);
  announce(log::Level::kInfo, "cmd = ", join(words, " "));
  runner_ = start_child(words, environment, false, SIGTERM, signals_.before());
}

std::vector<std::string> Roster::cleaning_words(const Part& part) const {
  if (job_.args.runner == Runner::kSlurm) {
    if (part.hello.slurm_job.empty()) return {};
    // If the launcher runs inside a Slurm job, only the step of srun ends.
    const bool is_in_job = job_.environment.contains("SLURM_JOB_ID");
    return {"scancel", "--quiet", part.hello.slurm_job + (is_in_job ? "." + part.hello.slurm_step : "")};
  }
  // MPI ends its processes itself, and may have no ssh.
  if (places_ranks(job_.args.runner) || part.hello.process.empty()) return {};
  const std::vector<std::string> words = {job_.node_program, "--end", part.hello.process};
  if (job_.machine.is_this(part.host)) return words;
  auto command = ssh_command(runner_job(), part.host, words, job_.environment);
  command.insert(command.begin() + 1, "-q");  // the lost machine has been reported already
  return command;
}

void Roster::start_cleaner(const Part& part) {
  if (places_ranks(job_.args.runner) && !cleaners_.empty()) return;  // one cleaner ends the whole job
  const std::vector<std::string> words = cleaning_words(part);
  if (words.empty()) return;
  try {
    cleaners_.push_back(
        {start_child(words, job_.environment, false, SIGKILL, signals_.before()), Channel::Clock::now()});
  } catch (const ProgramError&) {
    // Slurm's limits end the job, and the end of its link ends a part.
  }
}

bool Roster::cleaners_are_done() const {
  // A cleaner cannot reach a machine if the network is down, so it has a limit.
  return std::all_of(cleaners_.begin(), cleaners_.end(), [&](const Cleaner& cleaner) {
    return exit_of(cleaner.child) || Channel::Clock::now() - cleaner.began > kCleanerPatience;
  });
}

void Roster::write_host_list() {
  char path[] = "/tmp/deepspeed_hosts_XXXXXX";
  const Descriptor file(::mkstemp(path));
  std::string text;
  for (const HostSlots& node : nodes_) text += node.host + "\n";
  if (file) host_list_ = path;
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    raise<IoError>("cannot write ", path, ": ", std::strerror(errno));
}

std::vector<Part*> Roster::take_guests() {
  std::vector<Part*> came;
  if (!listener_) return came;
  for (LinkListener::Guest& guest : listener_->accept()) {
    const auto part = std::find_if(parts_.begin(), parts_.end(),
                                   [&](const Part& p) { return p.number == guest.hello.number; });
    if (part == parts_.end() || part->link || part->stage != Stage::kAwaited)
      continue;  // the guest is dropped
    part->link = std::move(guest.channel);
    part->hello = std::move(guest.hello);
    part->address = guest.address;
    if (part->host.empty()) part->host = part->hello.host;
    came.push_back(&*part);
  }
  return came;
}

void Roster::append_poll_entries(std::vector<pollfd>& entries) const {
  for (const auto* parts : {&parts_, &scouts_}) {
    for (const Part& part : *parts) {
      if (part.link) part.link->append_poll_entries(entries);
    }
  }
  if (listener_) listener_->append_poll_entries(entries);
}

bool Roster::all_reached(Stage stage) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.stage >= stage; });
}

bool Roster::scouts_have_answered() const {
  return std::all_of(scouts_.begin(), scouts_.end(),
                     [](const Part& scout) { return scout.stage >= Stage::kGreeted; });
}

void Roster::dismiss_scouts() {
  for (Part& scout : scouts_) {
    if (scout.link) scout.link->send(Stop{});
  }
  scouts_.clear();  // their programs end with their links
}

void Roster::stop_all(bool ranks_run) {
  for (Part& scout : scouts_) scout.stage = Stage::kEnded;
  for (Part& part : parts_) {
    if (part.stage == Stage::kEnded) continue;
    const bool has_answered = part.link && part.stage != Stage::kAwaited;
    if (has_answered) part.link->send(Stop{});
    if (has_answered && ranks_run) continue;
    part.stage = Stage::kEnded;
    if (part.link) part.link->close();
    if (!has_answered && part.child.pid > 0 && !exit_of(part.child)) ::kill(-part.child.pid, SIGKILL);
  }
}

void Roster::give_up(Part& part) {
  part.stage = Stage::kEnded;
  if (part.link) part.link->close();
  if (part.child.pid <= 0) return;
  // If ssh is about to end, its exit code tells what was wrong.
  for (int i = 0; i < 25 && !exit_of(part.child); ++i) {
    reap();
    if (!exit_of(part.child)) ::poll(nullptr, 0, 10);
  }
  if (!exit_of(part.child)) ::kill(-part.child.pid, SIGKILL);
}

void Roster::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) exits_[pid] = ExitStatus(status);
}

std::optional<ExitStatus> Roster::exit_of(const Child& child) const {
  const auto found = exits_.find(child.pid);
  return found == exits_.end() ? std::nullopt : std::optional(found->second);
}

void Roster::end(std::chrono::seconds patience) {
  std::vector<pid_t> children = {runner_.pid};
  for (Part& part : parts_) {
    if (part.link) part.link->close();
    children.push_back(part.child.pid);
  }
  dismiss_scouts();
  for (const Cleaner& cleaner : cleaners_) {
    if (!exit_of(cleaner.child)) ::kill(-cleaner.child.pid, SIGKILL);
    children.push_back(cleaner.child.pid);
  }
  std::erase_if(children, [&](pid_t pid) { return pid <= 0 || exits_.contains(pid); });
  // The children end by themselves, since the links are closed. Only a runner may still wait for a lost
  // machine.
  end_children(std::move(children), patience);
}

}  // namespace deepspeed::launcher
