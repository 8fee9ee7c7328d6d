#include "deepspeed/launcher/node/child.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/node/exec_arguments.h"
#include "deepspeed/launcher/node/process_tree.h"
#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {
namespace {

constexpr int kLookForEndMs = 20;
constexpr int kReadsOfAPipe = 16;  // this empties any pipe

/// Appends to `text` what a non-blocking descriptor has, at most a pipe's capacity. Returns false at its end.
bool read_what_is_there(int fd, std::string& text) {
  char bytes[65536];
  for (int reads = 0; reads < kReadsOfAPipe; ++reads) {
    const ssize_t size = ::read(fd, bytes, sizeof(bytes));
    if (size > 0) {
      text.append(bytes, static_cast<size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      return size < 0 && errno == EAGAIN;
    }
  }
  return true;
}

}  // namespace

Child start_child(const std::vector<std::string>& words, const Environment& environment, bool has_pipes,
                  int death_signal, const SignalState& signals) {
  const std::string program = find_program(words.front(), value_of(environment, "PATH", kDefaultPath));
  const ExecArguments arguments(words, environment);
  std::optional<Pipe> in, out;
  if (has_pipes) {
    in.emplace();
    out.emplace();
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) raise<IoError>("no new process: ", std::strerror(errno));
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, death_signal);
    if (::getppid() != parent) ::_exit(126);
    ::dup2(in ? in->read_end.get() : ::open("/dev/null", O_RDONLY), STDIN_FILENO);
    if (out) ::dup2(out->write_end.get(), STDOUT_FILENO);
    if (!signals.pipe_ignored) ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &signals.mask, nullptr);
    ::execve(program.c_str(), arguments.argv(), arguments.envp());
    ::_exit(126);
  }
  ::setpgid(pid, pid);
  if (!has_pipes) return {pid, {}, {}};
  return {pid, std::move(in->write_end), std::move(out->read_end)};
}

std::pair<std::string, int> finish_child(Child child, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  child.input.close();
  make_non_blocking(child.output.get());
  std::string output;
  int status = -1;
  bool has_ended = false;
  for (bool open = true; !has_ended && std::chrono::steady_clock::now() < until;) {
    // Another process may hold the output open, so waitpid() must tell the end of the child.
    pollfd entry{open ? child.output.get() : -1, POLLIN, 0};
    ::poll(&entry, 1, open ? kLookForEndMs : 1);
    has_ended = ::waitpid(child.pid, &status, WNOHANG) == child.pid;
    open = open && read_what_is_there(child.output.get(), output);
  }
  child.output.close();
  if (has_ended) return {output, status};
  ::kill(-child.pid, SIGKILL);
  ::waitpid(child.pid, &status, 0);
  return {output, -1};
}

void end_children(std::vector<pid_t> children, std::chrono::seconds patience) {
  std::set<std::string> below;  // pdsh starts each ssh in a group of its own
  for (const int number : {0, SIGTERM, SIGKILL}) {
    for (const pid_t pid : children) {
      if (number == 0) continue;
      for (const ProcessEntry& process : descendants_of(pid)) below.insert(process_name(process.pid));
      ::kill(-pid, number);
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!children.empty() && std::chrono::steady_clock::now() < until) {
      std::erase_if(children, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
      if (!children.empty()) ::poll(nullptr, 0, 10);
    }
  }
  for (const std::string& name : below) kill_process_tree(name, kKillPatience);
}

}  // namespace deepspeed::launcher
