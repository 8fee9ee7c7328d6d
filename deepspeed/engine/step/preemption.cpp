#include "deepspeed/engine/step/preemption.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <ATen/ops/full.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed {
namespace {

// The handler runs on any thread, and may only touch lock-free objects. Relaxed order is enough, because no
// other data depends on the flag.
constinit std::atomic<bool> g_received = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_preemption_signal(int) { g_received.store(true, std::memory_order_relaxed); }

/// Makes the signal set the flag instead of ending the process. Several signals may be caught; they share the
/// flag.
void catch_preemption_signal(int signal) {
  struct sigaction action = {};
  action.sa_handler = note_preemption_signal;
  action.sa_flags = SA_RESTART;  // waits for other ranks and for files continue
  sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, nullptr) != 0) {
    raise<UsageError>("signal ", signal, " cannot be caught: ", std::strerror(errno));
  }
}

}  // namespace

PreemptionWatch::PreemptionWatch(const PreemptionOptions& options) : check_every_(options.check_every) {
  if (check_every_ < 1) {
    raise<UsageError>("check_every is ", check_every_, ", expected at least 1");
  }
  catch_preemption_signal(options.signal);
}

void PreemptionWatch::end_step(const comm::ProcessGroup& group) {
  if (requested_) return;
  if (comparison_) {
    std::exchange(comparison_, {}).wait();
    requested_ = *votes_.const_data_ptr<double>() > 0.0;
    if (requested_)
      return log::warning("[engine] preemption was requested: the program should save and exit");
  }
  if (++steps_ % check_every_ != 0) return;
  votes_ = at::full({1}, g_received.load(std::memory_order_relaxed) ? 1.0 : 0.0, at::kDouble);
  comparison_ = group.start_all_reduce(votes_);
}

}  // namespace deepspeed
