#include "deepspeed/comm/watch/observer.h"

#include <mutex>
#include <utility>
#include <vector>

namespace deepspeed::comm {

struct RegisteredListener {
  std::mutex mutex;                 // held while the listener runs
  CallObserver::Listener listener;  // empty after it was removed
};

namespace {

// Never destroyed, because threads that end calls may outlive other statics.
struct RegisteredListeners {
  std::mutex mutex;
  std::vector<std::shared_ptr<RegisteredListener>> all;

  static RegisteredListeners& get() {
    static auto& instance = *new RegisteredListeners;
    return instance;
  }
};

}  // namespace

std::atomic<int> CallObserver::num_listening_{0};

CallObserver::CallObserver(Listener listener) : registered_(std::make_shared<RegisteredListener>()) {
  registered_->listener = std::move(listener);
  auto& listeners = RegisteredListeners::get();
  const std::lock_guard lock(listeners.mutex);
  listeners.all.push_back(registered_);
  ++num_listening_;
}

CallObserver::~CallObserver() {
  {
    auto& listeners = RegisteredListeners::get();
    const std::lock_guard lock(listeners.mutex);
    std::erase(listeners.all, registered_);
    --num_listening_;
  }
  const std::lock_guard lock(registered_->mutex);
  registered_->listener = nullptr;
}

struct Observation::State {
  ObservedCall call;
  std::vector<std::shared_ptr<RegisteredListener>> listening;
  std::mutex mutex;
  bool has_ended = false;
};

Observation::Observation(ObservedCall call) : state_(std::make_unique<State>()) {
  state_->call = std::move(call);
  {
    auto& listeners = RegisteredListeners::get();
    const std::lock_guard lock(listeners.mutex);
    state_->listening = listeners.all;
  }
  state_->call.begin = ObservedCall::Clock::now();
}

Observation::Observation(Observation&&) noexcept = default;

Observation::~Observation() {
  if (state_) end(ObservedCall::Outcome::kDropped);
}

void Observation::wait_begins() {
  const std::lock_guard lock(state_->mutex);
  if (state_->call.wait_begin == ObservedCall::Clock::time_point()) {
    state_->call.wait_begin = ObservedCall::Clock::now();
  }
}

void Observation::end(ObservedCall::Outcome outcome) {
  const auto now = ObservedCall::Clock::now();
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->has_ended, true)) return;
    state_->call.end = now;
    if (state_->call.wait_begin == ObservedCall::Clock::time_point()) state_->call.wait_begin = now;
    state_->call.outcome = outcome;
  }
  for (const auto& registered : state_->listening) {
    const std::lock_guard lock(registered->mutex);
    if (registered->listener) registered->listener(state_->call);
  }
}

}  // namespace deepspeed::comm
