// Runs functions one after the other on a thread, each with a c10d::Work to wait for. Internal to this
// folder.
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace deepspeed::comm {

/// Runs functions in order on one thread, which starts with the first function.
class BackgroundQueue {
 public:
  /// Makes an empty queue. `interrupt` must make a running function that waits for other ranks throw soon,
  /// and later functions at once. It is called from any thread when the process exits. The exit then waits up
  /// to two seconds for the running function to end.
  explicit BackgroundQueue(std::function<void()> interrupt);
  /// Drops functions that have not begun, and does not wait. A running function goes on, so a function must
  /// own everything it uses.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Queues `function`. The work's wait() throws what `function` throws.
  c10::intrusive_ptr<c10d::Work> run(std::function<void()> function);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
