#include "deepspeed/launcher/machines/child.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/plan/program.h"

namespace deepspeed::launcher {

Child start_child(const std::vector<std::string>& words, const Environment& environment, bool has_pipes,
                  int death_signal, const SignalState& signals) {
  const auto path = environment.find("PATH");
  const std::string program =
      find_program(words.front(), path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second);
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (std::string& entry : entries) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  if (has_pipes && (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0))
    raise<IoError>("no pipe: ", std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) raise<IoError>("no new process: ", std::strerror(errno));
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, death_signal);
    if (::getppid() != parent) ::_exit(126);
    ::dup2(has_pipes ? in[0] : ::open("/dev/null", O_RDONLY), STDIN_FILENO);
    if (has_pipes) ::dup2(out[1], STDOUT_FILENO);
    if (!signals.pipe_ignored) ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &signals.mask, nullptr);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(126);
  }
  ::setpgid(pid, pid);
  if (!has_pipes) return {pid, -1, -1};
  ::close(in[0]);
  ::close(out[1]);
  return {pid, in[1], out[0]};
}

std::pair<std::string, int> finish_child(Child& child, int patience_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  if (child.input >= 0) ::close(std::exchange(child.input, -1));
  std::string output;
  bool is_late = false;
  for (bool open = true; open && !is_late;) {
    pollfd entry{child.output, POLLIN, 0};
    ::poll(&entry, 1, 100);
    is_late = std::chrono::steady_clock::now() > until;
    if (entry.revents == 0) continue;
    char bytes[4096];
    const ssize_t size = ::read(child.output, bytes, sizeof(bytes));
    open = size > 0 || (size < 0 && errno == EINTR);
    if (size > 0) output.append(bytes, static_cast<size_t>(size));
  }
  if (is_late) ::kill(child.pid, SIGKILL);
  ::close(std::exchange(child.output, -1));
  int status = -1;
  ::waitpid(child.pid, &status, 0);
  return {output, is_late ? -1 : status};
}

void end_children(std::vector<pid_t> children, std::chrono::seconds patience) {
  for (const int number : {0, SIGTERM, SIGKILL}) {
    for (const pid_t pid : children) {
      if (number != 0) ::kill(-pid, number);
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!children.empty() && std::chrono::steady_clock::now() < until) {
      std::erase_if(children, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
      if (!children.empty()) ::poll(nullptr, 0, 10);
    }
  }
}

}  // namespace deepspeed::launcher
