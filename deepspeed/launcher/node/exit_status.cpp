#include "deepspeed/launcher/node/exit_status.h"

#include <csignal>
#include <cstring>

#include <sys/wait.h>

namespace deepspeed::launcher {

bool ExitStatus::success() const { return WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0; }

int ExitStatus::signal() const { return WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0; }

int ExitStatus::exit_code() const { return signal() != 0 ? 128 + signal() : WEXITSTATUS(wait_status_); }

std::string ExitStatus::describe() const {
  if (signal() == 0) return "exit code " + std::to_string(exit_code());
  return signal_name(signal()) + (WCOREDUMP(wait_status_) ? " (core dumped)" : "");
}

std::string signal_name(int signal) {
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return "SIGRTMIN+" + std::to_string(signal - SIGRTMIN);
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace deepspeed::launcher
