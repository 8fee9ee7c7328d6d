#include "deepspeed/launcher/machines/on_hosts.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <optional>
#include <utility>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/runner_command.h"
#include "deepspeed/launcher/node/child.h"
#include "deepspeed/launcher/node/exit_status.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kHostsUsage = "expected: ds_ssh [-f HOSTFILE] [-p PORT] COMMAND [its arguments]";
constexpr size_t kLongestLine = size_t{1} << 20;  // longer lines are cut
constexpr const char* kDefaultHostfile = "/job/hostfile";

struct HostOutput {
  std::string host;
  Child child;
  std::string line;
  bool ended = false;
};

struct HostsCommand {
  std::string hostfile = kDefaultHostfile;
  std::optional<int> port;
  std::vector<std::string> words;
};

HostsCommand parse_hosts_command(const std::vector<std::string>& words) {
  HostsCommand command;
  size_t i = 0;
  for (; i < words.size() && words[i].starts_with('-'); ++i) {
    if (words[i] == "--") {
      ++i;
      break;
    }
    const bool is_file = words[i] == "-f" || words[i] == "--hostfile";
    const bool is_port = words[i] == "-p" || words[i] == "--ssh_port";
    if ((!is_file && !is_port) || i + 1 == words.size())
      raise<UsageError>("ds_ssh: ", is_file || is_port ? "no value of " : "unknown flag ", words[i], ", ",
                        kHostsUsage);
    const std::string& value = words[++i];
    if (is_file) command.hostfile = value;
    if (is_port) command.port = parse_whole_number(value);
    if (is_port && !command.port) raise<UsageError>("ds_ssh: -p is '", value, "', expected a port");
  }
  command.words.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  if (command.words.empty()) raise<UsageError>("ds_ssh: no command, ", kHostsUsage);
  return command;
}

/// Prints the complete lines that have come, and the rest at the end.
void write_lines(HostOutput& host) {
  for (size_t end; (end = host.line.find('\n')) != std::string::npos; host.line.erase(0, end + 1))
    std::cout << host.host << ": " << host.line.substr(0, end) << "\n";
  if ((host.ended && !host.line.empty()) || host.line.size() > kLongestLine)
    std::cout << host.host << ": " << std::exchange(host.line, {}) << "\n";
  std::cout << std::flush;
}

void read_all(std::vector<HostOutput>& hosts) {
  const auto is_open = [](const HostOutput& host) { return !host.ended; };
  while (std::any_of(hosts.begin(), hosts.end(), is_open)) {
    std::vector<pollfd> entries;
    for (const HostOutput& host : hosts)
      entries.push_back({host.ended ? -1 : host.child.output.get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), -1);
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (entries[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t size = ::read(hosts[i].child.output.get(), bytes, sizeof(bytes));
      if (size < 0 && errno == EINTR) continue;
      hosts[i].ended = size <= 0;
      if (size > 0) hosts[i].line.append(bytes, static_cast<size_t>(size));
      write_lines(hosts[i]);
    }
  }
}

int run_checked_on_hosts(const std::vector<std::string>& words) {
  const HostsCommand command = parse_hosts_command(words);
  const auto pool = read_hostfile(command.hostfile);
  if (!pool)
    raise<UsageError>("ds_ssh: the hostfile ", command.hostfile,
                      " does not exist; name one by -f, with lines 'HOST slots=N'");
  const Environment environment = current_environment();
  RunnerJob job;
  job.runner = Runner::kSsh;
  job.ssh_port = command.port;
  const SignalState signals = current_signals();
  std::vector<HostOutput> hosts;
  for (const HostSlots& node : *pool) {
    hosts.push_back({node.host,
                     start_child(ssh_command(job, node.host, command.words, environment), environment, true,
                                 SIGKILL, signals),
                     "", false});
    hosts.back().child.input.close();
  }
  read_all(hosts);
  int greatest = 0;
  for (HostOutput& host : hosts) {
    int status = 0;
    ::waitpid(host.child.pid, &status, 0);
    const ExitStatus end(status);
    if (end.success()) continue;
    announce(log::Level::kError, "host ", host.host, ": the command ended with ", end.describe());
    greatest = std::max(greatest, end.exit_code());
  }
  return greatest;
}

}  // namespace

int run_on_hosts(const std::vector<std::string>& words) {
  if (!words.empty() && (words[0] == "-h" || words[0] == "--help")) {
    std::cout << "Runs a command on all hosts of a hostfile by ssh; " << kHostsUsage << "\n";
    return 0;
  }
  return exit_of_logged("", [&] { return run_checked_on_hosts(words); });
}

}  // namespace deepspeed::launcher
