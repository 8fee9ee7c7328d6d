#include "deepspeed/comm/backends/background.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "deepspeed/device/threads/exit_hook.h"

namespace deepspeed::comm {
namespace {

// How long the process's exit waits for a running function. A tensor operation takes longer only if it waits
// for other ranks.
constexpr std::chrono::seconds kEndLimit(2);

class FunctionWork : public c10d::Work {
 public:
  explicit FunctionWork(std::function<void()> function) : function_(std::move(function)) {}

  void execute() {
    std::exception_ptr error;
    try {
      function_();
    } catch (...) {
      error = std::current_exception();
    }
    function_ = nullptr;  // releases the tensors
    finish(error);
  }

 private:
  std::function<void()> function_;
};

}  // namespace

struct BackgroundQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<c10::intrusive_ptr<FunctionWork>> waiting;
  bool has_thread = false;
  bool stopped = false;
  bool running = false;
  std::function<void()> interrupt;

  static void serve(const std::shared_ptr<State>& state) {
    const c10::NoGradGuard no_grad;
    while (true) {
      c10::intrusive_ptr<FunctionWork> next;
      {
        std::unique_lock lock(state->mutex);
        state->changed.wait(lock, [&] { return state->stopped || !state->waiting.empty(); });
        if (state->stopped) return;
        next = std::move(state->waiting.front());
        state->waiting.pop_front();
        state->running = true;
      }
      next->execute();
      next = nullptr;
      const std::lock_guard lock(state->mutex);
      state->running = false;
      state->changed.notify_all();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex);
    stopped = true;
    waiting.clear();
    changed.notify_all();
  }

  void end() {
    stop();
    interrupt();
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kEndLimit, [&] { return !running; });
  }

  // The thread outlives the queue; it may run a function until the process exits.
  static void start(const std::shared_ptr<State>& state) {
    at::get_num_threads();  // creates torch's thread pool, a static that must outlive the hook
    auto hook = std::make_shared<ExitHook>([state] { state->end(); });
    std::thread([state, hook] { serve(state); }).detach();
  }
};

BackgroundQueue::BackgroundQueue(std::function<void()> interrupt) : state_(std::make_shared<State>()) {
  state_->interrupt = std::move(interrupt);
}

BackgroundQueue::~BackgroundQueue() { state_->stop(); }

c10::intrusive_ptr<c10d::Work> BackgroundQueue::run(std::function<void()> function) {
  auto work = c10::make_intrusive<FunctionWork>(std::move(function));
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(work);
  state_->changed.notify_one();
  if (!std::exchange(state_->has_thread, true)) State::start(state_);
  return work;
}

}  // namespace deepspeed::comm
