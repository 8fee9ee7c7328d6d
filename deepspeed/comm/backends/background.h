// A thread that runs functions one after the other, each with a c10d::Work to wait for. Internal to this
// folder.
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace deepspeed::comm {

/// The thread starts with the first function.
class BackgroundQueue {
 public:
  /// interrupt: makes a function that waits throw soon, and later ones at once. Called from any thread when
  /// the process exits; the queue then waits for the function to end.
  explicit BackgroundQueue(std::function<void()> interrupt);
  /// Functions that have not begun are dropped. Waits for nothing: one that runs ends on its own, so it must
  /// hold all that it uses.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// What `function` throws is thrown by the work's wait().
  c10::intrusive_ptr<c10d::Work> run(std::function<void()> function);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
