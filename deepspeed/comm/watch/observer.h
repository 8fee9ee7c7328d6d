// An observer listens to the calls of all groups of the process, for logs of communication and profilers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace deepspeed::comm {

/// Describes one call on this rank, told when it has ended. A tensor without elements makes no call.
struct ObservedCall {
  using Clock = std::chrono::steady_clock;
  /// Says how the call ended; kDropped: nobody waited for it.
  enum class Outcome { kDone, kFailed, kDropped };

  const char* name = "";  // "all_gather", "reduce_scatter", ..., "send", "barrier"
  /// Counts the whole tensor: the output of an all_gather, the input of a reduce_scatter, each of the two
  /// tensors of an all_to_all; 0 for a barrier.
  int64_t bytes = 0;
  std::string subject;  // what it is about (call_subject.h); "": not told
  std::string group;
  int group_size = 1;
  std::vector<int> global_ranks;  // of the group
  int rank = 0;                   // this one among them
  int peer = -1;                  // the root of a broadcast, the other end of a message; -1: there is none
  bool by_nodes = false;          // it goes within nodes and once between them
  Clock::time_point begin = {};   // when it was called
  /// Is when the program came to wait for it; end - wait_begin is what the call held the program up.
  Clock::time_point wait_begin = {};
  /// Is when the wait was over. On CUDA only the current stream waits, and the program goes on at once.
  Clock::time_point end = {};
  Outcome outcome = Outcome::kDone;
};

struct RegisteredListener;

/// Hears every call that begins while it lives. While there is none, a call pays one load and a branch.
class CallObserver {
 public:
  using Listener = std::function<void(const ObservedCall& call)>;

  /// Begins to listen. The threads that wait for calls tell the listener, one at a time. It must neither
  /// start nor wait for a collective, nor end the observer, nor throw.
  explicit CallObserver(Listener listener);
  /// Waits for the listener where it is being told; afterwards it hears nothing more.
  ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  // Relaxed: nothing is read by the answer; the list of listeners has a lock of its own.
  static bool is_anyone_listening() { return num_listening_.load(std::memory_order_relaxed) != 0; }

 private:
  static std::atomic<int> num_listening_;
  std::shared_ptr<RegisteredListener> registered_;
};

/// Holds a call under way and those who listened when it began. Internal to comm/.
class Observation {
 public:
  /// Begins the call and fills in `begin`.
  explicit Observation(ObservedCall call);
  /// Ends the call as dropped, unless it was moved from or has ended.
  ~Observation();
  Observation(Observation&&) noexcept;
  Observation& operator=(Observation&&) = delete;

  void wait_begins();
  /// Tells those who still listen. Any thread may call; later calls do nothing.
  void end(ObservedCall::Outcome outcome);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepspeed::comm
