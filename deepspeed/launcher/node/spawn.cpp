// Starts a rank with fork and exec. If a step in the child fails, the parent throws an error.
//
// Everything that the child needs is made before the fork (ChildPlan), since between fork and exec it may
// only make system calls. The child becomes the leader of a process group and asks for SIGKILL when its
// parent ends. Then it is bound to its cores, and gets its three streams and the signal settings from before
// the launcher. A failure goes into a pipe that a successful exec closes: the parent reads either the failure
// or end-of-file (wait_for_exec).
#include "deepspeed/launcher/node/spawn.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/launcher/node/exec_arguments.h"

namespace deepspeed::launcher {
namespace {

/// Describes a failed step of the child. It reaches the parent through a pipe that exec closes.
struct ChildFailure {
  char step[32] = {};
  int error = 0;
};

/// Holds everything the child needs. It is made before the fork, since afterwards only system calls are safe.
struct ChildPlan {
  const ExecArguments* arguments = nullptr;
  cpu_set_t* cores = nullptr;
  size_t cores_bytes = 0;
  int stdin_fd = -1;   // -1: keep the launcher's
  int stdout_fd = -1;  // -1: keep
  int stderr_fd = -1;
  int failure_fd = -1;
  pid_t parent = 0;
  SignalState signals;
};

Descriptor open_or_raise(const std::string& path, int flags, int rank) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!file) raise<IoError>("rank ", rank, ": cannot open ", path, ": ", std::strerror(errno));
  return file;
}

[[noreturn]] void fail_in_child(const ChildPlan& plan, const char* step) {
  ChildFailure failure;
  failure.error = errno;
  std::strncpy(failure.step, step, sizeof(failure.step) - 1);
  // The parent sees exit code 126 even if this write fails.
  if (::write(plan.failure_fd, &failure, sizeof(failure)) < 0) ::_exit(126);
  ::_exit(126);
}

void redirect(const ChildPlan& plan, int from, int to) {
  if (from >= 0 && ::dup2(from, to) < 0) fail_in_child(plan, "redirecting its output");
}

[[noreturn]] void run_child(const ChildPlan& plan, const char* program) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child(plan, "tying it to the launcher");
  // The parent may have ended before the line above took effect.
  if (::getppid() != plan.parent) ::_exit(126);
  if (plan.cores != nullptr && ::sched_setaffinity(0, plan.cores_bytes, plan.cores) != 0) {
    fail_in_child(plan, "binding it to its cores");
  }
  redirect(plan, plan.stdin_fd, STDIN_FILENO);
  redirect(plan, plan.stdout_fd, STDOUT_FILENO);
  redirect(plan, plan.stderr_fd, STDERR_FILENO);
  if (!plan.signals.pipe_ignored) ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &plan.signals.mask, nullptr);
  ::execve(program, plan.arguments->argv(), plan.arguments->envp());
  fail_in_child(plan, "executing the program");
}

std::vector<std::string> words_of(const std::string& program, const RankCommand& command) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), command.args.begin(), command.args.end());
  return words;
}

void fill_cores(ChildPlan& plan, const std::vector<int>& cores) {
  if (cores.empty()) return;
  const int capacity = *std::max_element(cores.begin(), cores.end()) + 1;
  plan.cores = CPU_ALLOC(capacity);
  plan.cores_bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(plan.cores_bytes, plan.cores);
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), plan.cores_bytes, plan.cores);
}

/// Waits until the child has executed the program or reported a failure.
void wait_for_exec(int failure_fd, int rank, const std::string& program, pid_t pid) {
  ChildFailure failure;
  ssize_t size = 0;
  do {
    size = ::read(failure_fd, &failure, sizeof(failure));
  } while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof(failure))) return;
  ::waitpid(pid, nullptr, 0);
  raise<IoError>("rank ", rank, ": ", failure.step, " (", program,
                 ") failed: ", std::strerror(failure.error));
}

}  // namespace

SignalState current_signals() {
  SignalState signals;
  ::sigprocmask(SIG_SETMASK, nullptr, &signals.mask);
  struct sigaction pipe {};
  ::sigaction(SIGPIPE, nullptr, &pipe);
  signals.pipe_ignored = pipe.sa_handler == SIG_IGN;
  return signals;
}

SpawnedRank spawn_rank(const std::string& program, const RankCommand& command, const SignalState& signals) {
  ChildPlan plan;
  plan.parent = ::getpid();
  plan.signals = signals;
  const ExecArguments arguments(words_of(program, command), command.environment);
  plan.arguments = &arguments;
  Descriptor no_input, log;
  if (command.rank != 0) no_input = open_or_raise("/dev/null", O_RDONLY, command.rank);
  if (!command.log_file.empty())
    log = open_or_raise(command.log_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, command.rank);
  Pipe errors, failure;
  plan.stdin_fd = no_input.get();
  plan.stdout_fd = log.get();
  plan.stderr_fd = log ? log.get() : errors.write_end.get();
  plan.failure_fd = failure.write_end.get();
  fill_cores(plan, command.cores);
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan, program.c_str());
  const int fork_error = errno;
  if (plan.cores != nullptr) CPU_FREE(plan.cores);
  if (pid < 0) raise<IoError>("rank ", command.rank, ": no new process: ", std::strerror(fork_error));
  ::setpgid(pid, pid);  // also here, so that a signal sent next reaches the group
  // Close the parent's copy of the write end, or the read would never see end-of-file.
  failure.write_end.close();
  wait_for_exec(failure.read_end.get(), command.rank, program, pid);
  if (log) return {pid, -1};
  make_non_blocking(errors.read_end.get());
  return {pid, errors.read_end.release()};
}

}  // namespace deepspeed::launcher
