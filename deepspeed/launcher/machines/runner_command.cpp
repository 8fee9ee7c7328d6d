// Each runner has one function. The runner's command line is DeepSpeed's in all that decides how ranks are
// placed. The last program on the line is ds_node, which gets the user's program and arguments in another
// way.
#include "deepspeed/launcher/machines/runner_command.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kPdshFanOut = "1024";

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

std::string hosts_of(const ResourcePool& nodes) {
  std::vector<std::string> hosts;
  for (const HostSlots& node : nodes) hosts.push_back(node.host);
  return join(hosts, ",");
}

std::string total_ranks(const ResourcePool& nodes) { return std::to_string(WorldLayout{nodes}.world_size()); }

/// Returns the number of ranks of each machine. Throws UsageError if it is not the same on all.
std::string ranks_of_each(const RunnerJob& job) {
  const size_t first = job.nodes.front().slots.size();
  for (const HostSlots& node : job.nodes) {
    if (node.slots.size() == first) continue;
    raise<UsageError>("--launcher ", name_of(job.runner), " needs as many slots on each machine, got ", first,
                      " on ", job.nodes.front().host, " and ", node.slots.size(), " on ", node.host,
                      "; even the hostfile out, or take pdsh, ssh or openmpi");
  }
  return std::to_string(first);
}

Words pdsh_words(const RunnerJob& job) {
  Words words = {"pdsh", "-S", "-f", kPdshFanOut, "-w", hosts_of(job.nodes)};
  append(words, job.runner_args);
  // pdsh replaces %n by the machine's number and %% by %. ssh joins the words for a shell.
  std::string program;
  for (const char c : shell_word(job.node_program)) program += c == '%' ? "%%" : std::string(1, c);
  append(words, {"exec", program, "--job", job.job_id, "--node", "%n"});
  return words;
}

bool chooses_interface(const Words& args) {
  for (size_t i = 0; i + 1 < args.size(); ++i) {
    if ((args[i] == "-mca" || args[i] == "--mca") && args[i + 1] == "btl_tcp_if_include") return true;
  }
  return false;
}

Words open_mpi_words(const RunnerJob& job) {
  Words words = {"mpirun", "-n", total_ranks(job.nodes)};
  if (!job.hostfile.empty()) append(words, {"-hostfile", job.hostfile});
  append(words, {"--mca", "btl", "^openib"});
  if (!chooses_interface(job.runner_args)) append(words, {"--mca", "btl_tcp_if_include", "eth0"});
  append(words, job.runner_args);
  // Only the names: mpirun reads the values from its own variables, and other users can see its command line.
  for (const std::string& name : job.variables) append(words, {"-x", name});
  append(words, {job.node_program, "--rank", "openmpi"});
  return words;
}

Words mpich_words(const RunnerJob& job) {
  Words words = {"mpirun", "-n", total_ranks(job.nodes), "-ppn", ranks_of_each(job)};
  append(words, job.runner_args);
  append(words, {"-genvall", "-hosts", hosts_of(job.nodes), job.node_program, "--rank", "mpich"});
  return words;
}

Words intel_mpi_words(const RunnerJob& job) {
  const std::string each = ranks_of_each(job);
  Words words = {"mpirun", "-ppn", each};
  append(words, job.runner_args);
  // The launcher binds cores, so Intel MPI must not.
  append(words, {"-genvall", "-genv", "I_MPI_PIN", "0", "-hosts", hosts_of(job.nodes)});
  const int total = WorldLayout{job.nodes}.world_size();
  const int local_size = static_cast<int>(job.nodes.front().slots.size());
  for (int rank = 0; rank < total; ++rank) {
    if (rank > 0) words.emplace_back(":");
    append(words, {"-n", "1", "-env", "RANK", std::to_string(rank), "-env", "LOCAL_RANK",
                   std::to_string(rank % local_size), job.node_program, "--rank", "impi"});
  }
  return words;
}

Words mvapich_words(const RunnerJob& job) {
  Words words = {"mpirun",           "-np",        total_ranks(job.nodes), "-ppn",
                 ranks_of_each(job), "--hostfile", job.host_list};
  append(words, job.runner_args);
  append(words, {"-genvall", job.node_program, "--rank", "mvapich"});
  return words;
}

Words slurm_words(const RunnerJob& job) {
  Words words = {"srun", "-n", total_ranks(job.nodes)};
  append(words, job.runner_args);
  if (!job.slurm_comment.empty()) append(words, {"--comment", job.slurm_comment});
  // Without a hostfile the job runs on this machine, or Slurm chooses.
  if (!job.hostfile.empty()) {
    append(words, {"--nodes", std::to_string(job.nodes.size()), "--ntasks-per-node", ranks_of_each(job),
                   "--nodelist", hosts_of(job.nodes)});
  }
  append(words, {"--export=ALL", job.node_program, "--rank", "slurm"});
  return words;
}

/// Returns the user's options for pdsh's ssh. %h and %u stand for host and user.
Words ssh_args_of_pdsh(const Environment& environment) {
  Words words;
  for (const char* name : {"PDSH_SSH_ARGS", "PDSH_SSH_ARGS_APPEND"}) {
    Words given = split_words(value_of(environment, name), name);
    // A word with %h names the host, and -l%u this user, which is ssh's default.
    std::erase_if(given, [](const std::string& word) { return word == "%h" || word == "-l%u"; });
    append(words, given);
  }
  return words;
}

}  // namespace

std::vector<std::string> split_words(const std::string& text, const std::string& flag) {
  Words words;
  std::string word;
  bool has_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (escapes && (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\')) {
      word += text[++i];
      has_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      has_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (has_word) words.push_back(std::exchange(word, {}));
      has_word = false;
    } else {
      word += c;
      has_word = true;
    }
  }
  if (quote != 0) raise<UsageError>(flag, ": the quote ", quote, " in '", text, "' does not end");
  if (has_word) words.push_back(word);
  return words;
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 ||
                       std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos);
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::vector<std::string> runner_command(const RunnerJob& job) {
  switch (job.runner) {
    case Runner::kPdsh:
      return pdsh_words(job);
    case Runner::kOpenMpi:
      return open_mpi_words(job);
    case Runner::kMpich:
      return mpich_words(job);
    case Runner::kIntelMpi:
      return intel_mpi_words(job);
    case Runner::kMvapich:
      return mvapich_words(job);
    case Runner::kSlurm:
      return slurm_words(job);
    case Runner::kSsh:
      break;
  }
  raise<UsageError>("ssh has a command for each machine");
}

std::vector<std::string> ssh_command(const RunnerJob& job, const std::string& host,
                                     const std::vector<std::string>& words, const Environment& environment) {
  Words command = {"ssh", "-T",
                   "-o",  "BatchMode=yes",
                   "-o",  "ConnectTimeout=10",
                   "-o",  "ServerAliveInterval=2",
                   "-o",  "ServerAliveCountMax=3"};
  if (job.ssh_port) append(command, {"-p", std::to_string(*job.ssh_port)});
  if (job.runner == Runner::kSsh) append(command, job.runner_args);
  if (job.runner == Runner::kPdsh) append(command, ssh_args_of_pdsh(environment));
  append(command, {"--", host, "exec"});
  for (const std::string& word : words) command.push_back(shell_word(word));
  return command;
}

Environment runner_variables(const RunnerJob& job, const Environment& environment) {
  if (job.runner == Runner::kOpenMpi) return {{"UCX_TLS", "tcp"}};
  if (job.runner == Runner::kMvapich) {
    return {{"MV2_SMP_USE_CMA", "0"},     {"MV2_DEBUG_SHOW_BACKTRACE", "1"},   {"MV2_SUPPORT_DL", "1"},
            {"MV2_ENABLE_AFFINITY", "0"}, {"MV2_INTER_ALLGATHER_TUNING", "5"}, {"MV2_CUDA_USE_NAIVE", "0"}};
  }
  if (job.runner != Runner::kPdsh) return {};
  Environment variables = {{"PDSH_RCMD_TYPE", "ssh"}};
  std::string appended = value_of(environment, "PDSH_SSH_ARGS_APPEND");
  if (job.ssh_port) variables["PDSH_SSH_ARGS_APPEND"] = appended + " -p " + std::to_string(*job.ssh_port);
  return variables;
}

void check_runner_flags(const LaunchArgs& args) {
  const bool filters = !args.include.empty() || !args.exclude.empty();
  if (!places_ranks(args.runner)) return;
  if (args.runner == Runner::kSlurm) {
    if (filters && (args.include + args.exclude).find(':') != std::string::npos) {
      raise<UsageError>("--launcher slurm takes whole hosts, got slots in --",
                        args.include.empty() ? "exclude '" + args.exclude : "include '" + args.include,
                        "'; leave the slots out");
    }
    return;
  }
  if (filters) {
    raise<UsageError>("--launcher ", name_of(args.runner),
                      " takes neither --include nor --exclude; name the machines ", "in the hostfile");
  }
  if (args.num_nodes || args.num_ranks) {
    raise<UsageError>("--launcher ", name_of(args.runner), " takes neither --num_nodes nor --num_gpus nor ",
                      "--num_procs; name machines and slots in the hostfile");
  }
}

const char* probe_of(Runner runner) {
  switch (runner) {
    case Runner::kPdsh:
      return "pdsh";
    case Runner::kSsh:
      return "ssh";
    case Runner::kSlurm:
      return "srun";
    case Runner::kOpenMpi:
      return "ompi_info";
    case Runner::kMvapich:
      return "mpiname";
    default:
      return "mpirun";
  }
}

}  // namespace deepspeed::launcher
