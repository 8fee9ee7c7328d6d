// This thread runs functions one after the other, each with a c10d::Work to wait for. Internal to this
// folder.
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace deepspeed::comm {

/// Runs functions on a thread, which starts with the first one.
class BackgroundQueue {
 public:
  /// Makes a queue without functions. interrupt: makes a function that waits throw soon, and later ones at
  /// once. Called from any thread when the process exits; the queue then waits for the function to end.
  explicit BackgroundQueue(std::function<void()> interrupt);
  /// Drops functions that have not begun. It waits for nothing: one that runs ends on its own, so it must
  /// hold all that it uses.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Queues `function`. The work's wait() throws what it throws.
  c10::intrusive_ptr<c10d::Work> run(std::function<void()> function);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
