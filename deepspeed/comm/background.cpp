#include "deepspeed/comm/background.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <c10/core/GradMode.h>

namespace deepspeed::comm {
namespace {

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
    function_ = nullptr;  // lets go of the tensors
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
      }
      next->execute();
    }
  }
};

BackgroundQueue::BackgroundQueue() : state_(std::make_shared<State>()) {}

BackgroundQueue::~BackgroundQueue() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->waiting.clear();
  state_->changed.notify_all();
}

c10::intrusive_ptr<c10d::Work> BackgroundQueue::run(std::function<void()> function) {
  auto work = c10::make_intrusive<FunctionWork>(std::move(function));
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(work);
  state_->changed.notify_one();
  if (!std::exchange(state_->has_thread, true)) std::thread(&State::serve, state_).detach();
  return work;
}

}  // namespace deepspeed::comm
