// Starts ds_node in one of its modes (run_agent). The modes --link, --job and --rank make the link to the
// launcher, say Hello over it, and hand it to an Agent, which does the rest.
#include "deepspeed/launcher/agent/node_program.h"

#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/version.h"
#include "deepspeed/launcher/agent/agent.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/link/tcp_link.h"
#include "deepspeed/launcher/node/process_tree.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {
namespace {

// The launcher waits equally long for a machine's Hello.
constexpr auto kDepositPatience = std::chrono::seconds(60);

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

/// Returns a name that is unique in the job, even if containers share a host's name.
std::string machine_name() {
  char space[64] = {};
  const ssize_t size = ::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  return host_name() + " " + (size > 0 ? space : "");
}

/// Returns an address at which other machines reach this one. It is the address that ssh connected to, or
/// else this machine's first.
std::string own_address() {
  const auto connection = env::get("SSH_CONNECTION");
  if (connection) {
    const auto words = split(*connection, ' ');
    if (words.size() == 4 && !words[2].starts_with("127.") && words[2] != "::1") return words[2];
  }
  const auto addresses = addresses_of_this_machine();
  return addresses.empty() ? "127.0.0.1" : addresses.front();
}

Hello hello_message() {
  Hello hello;
  hello.version = version();
  hello.host = host_name();
  hello.machine = machine_name();
  hello.process = process_name(::getpid());
  hello.address = own_address();
  return hello;
}

/// Reads the rank, and Slurm's job, from variables that the runner has set. Throws UsageError if none tells
/// the rank.
Hello hello_of_rank(const std::string& runner) {
  const std::pair<const char*, const char*> sources[] = {
      {"openmpi", "OMPI_COMM_WORLD_RANK"}, {"mvapich", "MV2_COMM_WORLD_RANK"}, {"impi", "RANK"},
      {"slurm", "SLURM_PROCID"},           {runner.c_str(), "PMIX_RANK"},      {runner.c_str(), "PMI_RANK"}};
  Hello hello = hello_message();
  for (const auto& [name, variable] : sources) {
    if (runner == name && !hello.number) hello.number = env::get_int(variable);
  }
  if (const auto job = runner == "slurm" ? env::get("SLURM_JOB_ID") : std::nullopt) {
    hello.slurm_job = *job;
    hello.slurm_step = env::get("SLURM_STEP_ID").value_or("");
  }
  if (!hello.number)
    raise<UsageError>("--launcher ", runner, " has set no variable that tells this process its rank");
  return hello;
}

/// Removes the job's variables (is_job_variable()) from this process, so that ranks do not see them.
void forget_variables_of_job() {
  for (const auto& [name, value] : current_environment()) {
    if (is_job_variable(name)) env::set(name.c_str(), std::nullopt);
  }
}

/// Makes a link of standard input and output, and says Hello. Standard input is then empty, and standard
/// output goes to standard error.
Channel standard_link() {
  Descriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  // The shell may have printed text without an end of line.
  static_cast<void>(!::write(out.get(), "\n", 1));
  Channel link(std::move(in), std::move(out));
  link.send(hello_message());
  return link;
}

int keep_deposit(const std::string& id) {
  std::string line;
  std::getline(std::cin, line);
  const auto message = as<DepositJob>(Json::parse(line, nullptr, false));
  if (!message) raise<IoError>("no description of the job came");
  const Deposit deposit(id, message->job);
  std::cout << "\n" << to_json(hello_message()).dump() << std::endl;
  // The file is removed when the launcher ends and closes this input.
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

int run_agent(const std::vector<std::string>& words) {
  ::prctl(PR_SET_NAME, "ds_node");
  if (words.size() == 2 && words[0] == "--end") return kill_process_tree(words[1], kKillPatience) ? 0 : 1;
  if (words.size() == 2 && words[0] == "--deposit") return keep_deposit(words[1]);
  const BlockedSignals signals;
  ::signal(SIGPIPE, SIG_IGN);
  become_subreaper();
  if (words.size() == 1 && words[0] == "--link") return Agent(standard_link(), {}, true, signals).run();
  std::optional<CarriedJob> job;
  Hello hello = hello_message();
  if (words.size() == 4 && words[0] == "--job" && words[2] == "--node") {
    const auto node = parse_whole_number(words[3]);
    if (!node) raise<UsageError>("--node is '", words[3], "', expected this machine's number");
    job = CarriedJob::from_text(take_deposit(words[1], kDepositPatience));
    hello.number = *node;
  } else if (words.size() == 2 && words[0] == "--rank") {
    Environment environment = current_environment();
    job = take_job(environment);
    forget_variables_of_job();
    hello = hello_of_rank(words[1]);
  } else {
    raise<UsageError>(
        "this program is started by `deepspeed` on the machines of a job; see deepspeed --help");
  }
  Channel link = connect_to_launcher(*job, hello);
  return Agent(std::move(link), std::move(job), false, signals).run();
}

}  // namespace

int run_node_program(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--version") {
    std::cout << version() << "\n";
    return 0;
  }
  return exit_of_logged(host_name() + ": ", [&] { return run_agent(words); });
}

}  // namespace deepspeed::launcher
