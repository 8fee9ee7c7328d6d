#include "deepspeed/launcher/node/exit_status.h"

#include <csignal>

#include <sys/wait.h>

namespace deepspeed::launcher {
namespace {

// glibc has these names since 2.32.
struct Named {
  int signal;
  const char* name;
};
constexpr Named kNames[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"}};

}  // namespace

bool ExitStatus::success() const { return WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0; }

int ExitStatus::signal() const { return WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0; }

int ExitStatus::exit_code() const { return signal() != 0 ? 128 + signal() : WEXITSTATUS(wait_status_); }

std::string ExitStatus::describe() const {
  if (signal() == 0) return "exit code " + std::to_string(exit_code());
  return signal_name(signal()) + (WCOREDUMP(wait_status_) ? " (core dumped)" : "");
}

std::string signal_name(int signal) {
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return "SIGRTMIN+" + std::to_string(signal - SIGRTMIN);
  for (const Named& named : kNames) {
    if (named.signal == signal) return named.name;
  }
  return "signal " + std::to_string(signal);
}

}  // namespace deepspeed::launcher
