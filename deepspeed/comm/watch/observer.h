// Reports the calls of all groups of the process, for communication logs and profilers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace deepspeed::comm {

/// Describes one call on this rank after it has ended. A collective over an empty tensor makes no call.
struct ObservedCall {
  using Clock = std::chrono::steady_clock;
  /// Tells how the call ended; kDropped: without anyone waiting for it.
  enum class Outcome { kDone, kFailed, kDropped };

  const char* name = "";  // "all_gather", "reduce_scatter", ..., "send", "barrier"
  /// Bytes of the whole tensor; 0 for a barrier. That is the output of an all_gather, the input of a
  /// reduce_scatter, or either tensor of an all_to_all.
  int64_t bytes = 0;
  std::string subject;  // what the call is about (call_subject.h); "": unknown
  std::string group;
  int group_size = 1;
  std::vector<int> global_ranks;  // of the group
  int rank = 0;                   // index of this rank among them
  int peer = -1;                  // root of a broadcast or other end of a message; -1: none
  bool by_nodes = false;          // in two steps, within nodes and between them
  Clock::time_point begin = {};   // when it was called
  /// When the program began to wait for it; `end` if it did not. The call delayed the program by end -
  /// wait_begin.
  Clock::time_point wait_begin = {};
  /// When the wait was over. On CUDA only the current stream waits, and the program continues at once.
  Clock::time_point end = {};
  Outcome outcome = Outcome::kDone;
};

struct RegisteredListener;

/// Reports every call that begins during its lifetime. Without observers a call costs one load and a branch.
class CallObserver {
 public:
  using Listener = std::function<void(const ObservedCall& call)>;

  /// Starts observing. The listener runs in threads that wait for calls, one at a time. It must not start or
  /// wait for a collective, end the observer, or throw.
  explicit CallObserver(Listener listener);
  /// Waits for a running listener. Afterwards the listener is not called again.
  ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  // Relaxed, because no other data depends on the answer: the list of listeners has a lock of its own.
  static bool is_anyone_listening() { return num_listening_.load(std::memory_order_relaxed) != 0; }

 private:
  static std::atomic<int> num_listening_;
  std::shared_ptr<RegisteredListener> registered_;
};

/// Tracks a call in progress, and the observers that were present when it began. Internal to comm/.
class Observation {
 public:
  /// Begins the call and sets `begin`.
  explicit Observation(ObservedCall call);
  /// Ends the call as dropped, unless it has ended or was moved from.
  ~Observation();
  Observation(Observation&&) noexcept;
  Observation& operator=(Observation&&) = delete;

  void wait_begins();
  /// Reports the call to the observers that were present when it began and still exist. Thread-safe; later
  /// calls do nothing.
  void end(ObservedCall::Outcome outcome);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepspeed::comm
