#include "deepspeed/launcher/node/node_launch.h"

#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/announce.h"
#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/node/process_tree.h"
#include "deepspeed/launcher/node/supervisor.h"

namespace deepspeed::launcher {
namespace {

/// Lists the signals that the launcher waits for instead of being interrupted by them. A signal that the
/// caller ignores (nohup, a background job of a script) stays ignored.
sigset_t watched_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    struct sigaction current {};
    ::sigaction(number, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&watched, number);
  }
  return watched;
}

/// Stops the whole launch at a terminal's Ctrl-Z, until `fg` continues it.
void stop_until_continued(pid_t supervisor) {
  ::kill(supervisor, SIGTSTP);
  ::raise(SIGSTOP);
}

/// Forwards signals until the supervisor has ended. Returns how it ended.
ExitStatus wait_for_supervisor(pid_t supervisor, const sigset_t& watched) {
  for (;;) {
    int status = 0;
    if (::waitpid(supervisor, &status, WNOHANG) == supervisor) return ExitStatus(status);
    siginfo_t info{};
    const int number = ::sigwaitinfo(&watched, &info);
    if (number <= 0 || number == SIGCHLD) continue;
    if (number == SIGTSTP) {
      stop_until_continued(supervisor);
    } else {
      ::kill(supervisor, number);
    }
  }
}

}  // namespace

BlockedSignals::BlockedSignals() : watched_(watched_signals()), before_(current_signals()) {
  // If a process ignores SIGCHLD, the status of its children is lost.
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_BLOCK, &watched_, nullptr);
}

BlockedSignals::~BlockedSignals() { ::sigprocmask(SIG_SETMASK, &before_.mask, nullptr); }

PidFile::PidFile(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  // An old file with that name belongs to a process that has ended, since this process has its id. O_NOFOLLOW
  // guards against links, because all users may write to that folder.
  ::unlink(path_.c_str());
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  const std::string text = std::to_string(::getpid());
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    raise<IoError>("--save_pid: cannot write ", path_, ": ", std::strerror(errno));
}

PidFile::~PidFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

int launch_node(const NodeLaunch& launch) {
  Pipe life;  // its end tells the supervisor that this process has vanished
  const PidFile pid_file(launch.pid_file);
  const BlockedSignals signals;
  become_subreaper();
  const pid_t supervisor = ::fork();
  if (supervisor < 0) raise<IoError>("no new process: ", std::strerror(errno));
  if (supervisor == 0) {
    life.write_end.close();
    ::_exit(run_supervisor(launch, life.read_end.get(), signals.watched(), signals.before()));
  }
  life.read_end.close();
  const ExitStatus status = wait_for_supervisor(supervisor, signals.watched());
  life.write_end.close();
  if (status.signal() != 0) {
    announce(log::Level::kError, "the supervisor of the ranks was ended by ", status.describe(),
             "; all ranks are being killed");
    kill_descendants(kKillPatience);
  }
  return status.exit_code();
}

}  // namespace deepspeed::launcher
