#include "deepspeed/launcher/machines/job_start.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {

bool places_ranks(Runner runner) { return runner != Runner::kPdsh && runner != Runner::kSsh; }

JobStart::JobStart(const MachineJob& job, const ResourcePool& nodes, const BlockedSignals& signals)
    : job_(job),
      nodes_(nodes),
      signals_(signals),
      id_(hex(random_bytes(12))),
      store_secret_(hex(random_bytes(32))) {
  if (job_.args.runner == Runner::kSsh) return;
  secret_ = random_bytes(32);
  listener_ = std::make_unique<LinkListener>(secret_);
}

JobStart::~JobStart() {
  if (!host_list_.empty()) ::unlink(host_list_.c_str());
}

CarriedJob JobStart::carried_job() const {
  CarriedJob job{job_.words, job_.exports, "", secret_, {}, 0};
  job.exports.emplace("DEEPSPEED_STORE_SECRET", store_secret_);  // one that the user has set stays
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

std::string JobStart::text_for_links() const { return listener_ ? "" : carried_job().text(); }

RunnerJob JobStart::runner_job() const {
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

Part JobStart::part_by_ssh(const HostSlots& node, int number, const std::vector<std::string>& words) const {
  const bool is_here = job_.args.runner == Runner::kSsh && job_.machine.is_this(node.host);
  const auto command = is_here ? words : ssh_command(runner_job(), node.host, words, job_.environment);
  Part part;
  part.host = node.host;
  part.number = number;
  part.child = start_child(command, job_.environment, true, SIGKILL, signals_.before());
  part.link.emplace(part.child.output, part.child.input);
  part.link->skip_noise();
  return part;
}

std::vector<Part> JobStart::parts() const {
  std::vector<Part> parts;
  const bool are_ranks = places_ranks(job_.args.runner);
  const int count = are_ranks ? WorldLayout{nodes_}.world_size() : static_cast<int>(nodes_.size());
  for (int number = 0; number < count; ++number) {
    if (!listener_) {
      parts.push_back(
          part_by_ssh(nodes_[static_cast<size_t>(number)], number, {job_.node_program, "--link"}));
      continue;
    }
    parts.emplace_back();
    parts.back().number = number;
    if (!are_ranks) parts.back().host = nodes_[static_cast<size_t>(number)].host;
  }
  return parts;
}

std::vector<Part> JobStart::scouts() const {
  std::vector<Part> scouts;
  const bool brings_job = job_.args.runner == Runner::kPdsh;
  const std::string text = brings_job ? carried_job().text() : "";
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int number = static_cast<int>(i);
    if (brings_job) {
      const std::vector<std::string> words = {job_.node_program, "--deposit",
                                              id_ + "n" + std::to_string(number)};
      scouts.push_back(part_by_ssh(nodes_[i], number, words));
      scouts.back().link->send(DepositJob{text});
    } else if (job_.checks_hosts && !job_.machine.is_this(nodes_[i].host)) {
      scouts.push_back(part_by_ssh(nodes_[i], number, {job_.node_program, "--link"}));
    }
  }
  return scouts;
}

Child JobStart::start_runner(const ResourcePool& nodes) {
  if (job_.args.runner == Runner::kMvapich) write_host_list(nodes);
  RunnerJob runner = runner_job();
  runner.nodes = nodes;
  Environment environment = job_.environment;
  if (places_ranks(runner.runner)) {
    // What the files of variables say holds for programs of MPI from their start.
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
  return start_child(words, environment, false, SIGTERM, signals_.before());
}

/// Cancels the step alone where srun has not made the job but runs in one that the user has.
std::optional<Child> JobStart::start_cancelling(const Part& part) const {
  std::string job = part.hello.slurm_job;
  if (job.empty()) return std::nullopt;
  if (job_.environment.contains("SLURM_JOB_ID")) job += "." + part.hello.slurm_step;
  try {
    return start_child({"scancel", "--quiet", job}, job_.environment, false, SIGKILL, signals_.before());
  } catch (const ProgramError&) {
    return std::nullopt;  // Slurm's own limits end it
  }
}

std::optional<Child> JobStart::start_cleaner(const Part& part) const {
  if (job_.args.runner == Runner::kSlurm) return start_cancelling(part);
  if (places_ranks(job_.args.runner)) return std::nullopt;  // MPI has its own ways, and needs no ssh
  const std::string& process = part.hello.process;
  if (process.empty()) return std::nullopt;
  const std::vector<std::string> words = {job_.node_program, "--end", process};
  if (job_.machine.is_this(part.host))
    return start_child(words, job_.environment, false, SIGKILL, signals_.before());
  auto command = ssh_command(runner_job(), part.host, words, job_.environment);
  command.insert(command.begin() + 1, "-q");  // a machine that is gone has been reported already
  return start_child(command, job_.environment, false, SIGKILL, signals_.before());
}

void JobStart::write_host_list(const ResourcePool& nodes) {
  char path[] = "/tmp/deepspeed_hosts_XXXXXX";
  const int fd = ::mkstemp(path);
  std::string text;
  for (const HostSlots& node : nodes) text += node.host + "\n";
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) host_list_ = path;
  if (fd >= 0) ::close(fd);
  if (!written) raise<IoError>("cannot write ", path, ": ", std::strerror(error));
}

}  // namespace deepspeed::launcher
