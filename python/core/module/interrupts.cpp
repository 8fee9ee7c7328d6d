// Handles Ctrl-C while a rank waits in a collective. Python's handler only notes the signal. The interpreter
// runs no code until the call returns, which may be after the group's timeout.
//
// 1. This file's handler writes a byte to a pipe and calls Python's handler.
// 2. A thread reads the byte and waits until the script has noticed the signal and called note_interrupt().
// 3. If the script does not notice the signal in time, the thread aborts the core's process group, and the
//    waiting call throws CommError.
// 4. The translator of CommError (errors.cpp) lets Python raise KeyboardInterrupt instead.
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <unistd.h>

#include "deepspeed/comm/init.h"

#include "python/core/module/bindings.h"

namespace deepspeed::python {
namespace {

constexpr std::chrono::milliseconds kPatience(400);

int pipe_ends[2] = {-1, -1};
std::atomic<int64_t> num_noted = 0;
struct sigaction handler_before;

void on_interrupt(int number, siginfo_t* info, void* context) {
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = ::write(pipe_ends[1], &byte, 1);
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
    handler_before.sa_sigaction(number, info, context);
  } else if (handler_before.sa_handler != SIG_IGN && handler_before.sa_handler != SIG_DFL) {
    handler_before.sa_handler(number);
  }
}

void watch() {
  char byte = 0;
  while (::read(pipe_ends[0], &byte, 1) == 1) {
    const int64_t noted_before = num_noted;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (num_noted == noted_before && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (num_noted == noted_before && comm::is_initialized()) comm::abort_process_group();
  }
}

/// Installs on_interrupt() for SIGINT, in front of Python's handler. Call it again if the script has replaced
/// the handler.
void watch_interrupts() {
  if (pipe_ends[0] < 0) {
    if (::pipe(pipe_ends) != 0) return;
    std::thread(watch).detach();
  }
  struct sigaction present = {};
  ::sigaction(SIGINT, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == &on_interrupt) return;
  handler_before = present;
  struct sigaction own = {};
  own.sa_sigaction = &on_interrupt;
  own.sa_flags = SA_SIGINFO | (present.sa_flags & SA_ONSTACK);
  sigemptyset(&own.sa_mask);
  ::sigaction(SIGINT, &own, nullptr);
}

}  // namespace

void bind_interrupts(py::module_& module) {
  module.def("watch_interrupts", &watch_interrupts);
  module.def("note_interrupt", [] { ++num_noted; });
}

}  // namespace deepspeed::python
