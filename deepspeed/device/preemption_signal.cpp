#include "deepspeed/device/preemption_signal.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include "deepspeed/base/error.h"

namespace deepspeed::device {
namespace {

volatile std::sig_atomic_t g_received = 0;  // all that a signal handler may touch

extern "C" void note_preemption_signal(int) { g_received = 1; }

}  // namespace

void catch_preemption_signal(int signal) {
  struct sigaction action = {};
  action.sa_handler = note_preemption_signal;
  action.sa_flags = SA_RESTART;  // waits for other ranks and for files go on
  sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, nullptr) != 0) {
    raise<UsageError>("signal ", signal, " cannot be caught: ", std::strerror(errno));
  }
}

bool preemption_signal_received() { return g_received != 0; }

}  // namespace deepspeed::device
