// Decides which thread runs an operation.
//
// Operations are queued. A waiting rank runs the queue in order, up to the operation it waits for, unless the
// queue's thread is already doing so. A wait then ends without a switch of threads, and a rank that waits
// elsewhere still does its part. Messages have their own thread (messages.h).
#include "deepspeed/comm/backends/shm/shared_exchange.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/core/ivalue.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/operation.h"
#include "deepspeed/comm/shm/collectives.h"
#include "deepspeed/comm/shm/messages.h"
#include "deepspeed/device/threads/exit_hook.h"
#include "deepspeed/kernels/combine.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;
using WorkPtr = SharedExchange::WorkPtr;
using SharedRun = std::function<void(shm::Collectives&, const shm::Call&)>;

// How long the process's exit waits for a running operation, which takes longer only if it waits for other
// ranks.
constexpr std::chrono::seconds kSharedEndLimit(2);

std::optional<kernels::CombineType> combine_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::CombineType::kFloat32;
    case at::kDouble:
      return kernels::CombineType::kFloat64;
    case at::kHalf:
      return kernels::CombineType::kFloat16;
    case at::kBFloat16:
      return kernels::CombineType::kBFloat16;
    case at::kChar:
      return kernels::CombineType::kInt8;
    case at::kByte:
      return kernels::CombineType::kUint8;
    case at::kShort:
      return kernels::CombineType::kInt16;
    case at::kInt:
      return kernels::CombineType::kInt32;
    case at::kLong:
      return kernels::CombineType::kInt64;
    default:
      return std::nullopt;
  }
}

kernels::CombineOp combine_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return kernels::CombineOp::kMax;
    case ReduceOp::kMin:
      return kernels::CombineOp::kMin;
    case ReduceOp::kProduct:
      return kernels::CombineOp::kProduct;
    case ReduceOp::kAvg:
      return kernels::CombineOp::kAverage;
    case ReduceOp::kBand:
      return kernels::CombineOp::kAnd;
    case ReduceOp::kBor:
      return kernels::CombineOp::kOr;
    case ReduceOp::kBxor:
      return kernels::CombineOp::kXor;
    case ReduceOp::kSum:
      break;
  }
  return kernels::CombineOp::kSum;
}

shm::Reduction reduction_of(at::ScalarType type, ReduceOp op) {
  if (!SharedExchange::can_reduce(type, op))
    raise<NotSupportedError>("there is no such reduction of ", type,
                             " on the CPU, expected a float of 16, 32 or 64 bits, or an integer");
  return {combine_op(op), *combine_type(type)};
}

/// Represents an operation, also as the c10d future that some callers need.
class SharedWork : public c10d::Work {
 public:
  SharedWork() : future_(c10::make_intrusive<at::ivalue::Future>(c10::NoneType::get())) {}

  c10::intrusive_ptr<at::ivalue::Future> getFuture() override { return future_; }

  void end(std::exception_ptr error) {
    // first, because a caller whose wait is over may query the future at once
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted();
    }
    finish(error);
  }

 private:
  c10::intrusive_ptr<at::ivalue::Future> future_;
};

class SharedTask;

}  // namespace

struct SharedExchange::State {
  State(std::unique_ptr<shm::Member> given, milliseconds limit)
      : member(std::move(given)), collectives(*member), messages(*member), timeout(limit) {}

  std::unique_ptr<shm::Member> member;
  shm::Collectives collectives;  // for the busy thread
  shm::Messages messages;
  const milliseconds timeout;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<c10::intrusive_ptr<SharedTask>> queue;
  bool is_busy = false;
  bool has_thread = false;
  bool stopped = false;

  Clock::time_point deadline() const { return Clock::now() + timeout; }
  /// Runs the oldest operation of the queue to its end. Returns false if there is none, or another thread
  /// runs one.
  bool run_next();
  void stop();
  void abort();
  static void serve(const std::shared_ptr<State>& state);
  static void start_thread(const std::shared_ptr<State>& state);
};

namespace {

class SharedTask final : public SharedWork {
 public:
  SharedTask(std::weak_ptr<SharedExchange::State> state, SharedRun run, uint64_t fingerprint)
      : state_(std::move(state)), run_(std::move(run)), fingerprint_(fingerprint) {}

  bool wait(milliseconds timeout) override {
    if (const auto state = state_.lock()) {
      while (!isCompleted() && state->run_next()) {
      }
    }
    return Work::wait(timeout);
  }

  void execute(SharedExchange::State& state) {
    std::exception_ptr error;
    try {
      if (state.member->gave_up()) raise<CommError>("the group was given up");
      run_(state.collectives, {fingerprint_, state.deadline()});
    } catch (...) {
      error = std::current_exception();
    }
    run_ = nullptr;  // releases the tensors
    end(error);
  }

 private:
  std::weak_ptr<SharedExchange::State> state_;
  SharedRun run_;
  uint64_t fingerprint_;
};

}  // namespace

bool SharedExchange::State::run_next() {
  std::unique_lock lock(mutex);
  if (queue.empty() || is_busy) return false;
  const auto next = std::move(queue.front());
  queue.pop_front();
  is_busy = true;
  lock.unlock();
  next->execute(*this);
  lock.lock();
  is_busy = false;
  if (!queue.empty() || stopped) changed.notify_all();
  return true;
}

void SharedExchange::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopped = true;
    changed.notify_all();
  }
  abort();
}

void SharedExchange::State::abort() {
  member->give_up();
  messages.wake();
}

void SharedExchange::State::serve(const std::shared_ptr<State>& state) {
  while (true) {
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->queue.empty() ? state->stopped : !state->is_busy; });
      if (state->queue.empty()) return;  // only after stop; remaining operations have failed quickly
    }
    state->run_next();
  }
}

void SharedExchange::State::start_thread(const std::shared_ptr<State>& state) {
  auto hook = std::make_shared<ExitHook>([weak = std::weak_ptr(state)] {
    const auto held = weak.lock();
    if (!held || held->member->is_child()) return;
    held->stop();
    std::unique_lock lock(held->mutex);
    held->changed.wait_for(lock, kSharedEndLimit, [&] { return !held->is_busy; });
  });
  std::thread([state, hook] { serve(state); }).detach();
}

SharedExchange::SharedExchange(std::unique_ptr<shm::Member> member, milliseconds timeout)
    : state_(std::make_shared<State>(std::move(member), timeout)) {}

SharedExchange::~SharedExchange() {
  if (state_->member->is_child()) return;
  state_->member
      ->leave();  // before ending operations, so that peers that notice are told that this rank left
  state_->stop();
}

void SharedExchange::abort() { state_->abort(); }

bool SharedExchange::can_reduce(at::ScalarType type, ReduceOp op) {
  const auto combined = combine_type(type);
  return combined && kernels::can_combine(combine_op(op), *combined);
}

namespace {

WorkPtr start_shared_task(const std::shared_ptr<SharedExchange::State>& state, uint64_t fingerprint,
                          SharedRun run) {
  auto task = c10::make_intrusive<SharedTask>(state, std::move(run), fingerprint);
  const std::lock_guard lock(state->mutex);
  state->queue.push_back(task);
  if (!std::exchange(state->has_thread, true)) SharedExchange::State::start_thread(state);
  if (!state->is_busy) state->changed.notify_one();
  return task;
}

char* bytes_at(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

}  // namespace

WorkPtr SharedExchange::all_reduce(const at::Tensor& tensor, ReduceOp op, uint64_t fingerprint) {
  const auto reduction = reduction_of(tensor.scalar_type(), op);
  return start_shared_task(state_, fingerprint, [=](shm::Collectives& collectives, const shm::Call& call) {
    collectives.all_reduce(call, bytes_at(tensor), tensor.nbytes(), reduction);
  });
}

WorkPtr SharedExchange::broadcast(const at::Tensor& tensor, int root, uint64_t fingerprint) {
  return start_shared_task(state_, fingerprint, [=](shm::Collectives& collectives, const shm::Call& call) {
    collectives.broadcast(call, bytes_at(tensor), tensor.nbytes(), root);
  });
}

WorkPtr SharedExchange::all_gather(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint) {
  return start_shared_task(state_, fingerprint, [=](shm::Collectives& collectives, const shm::Call& call) {
    collectives.all_gather(call, bytes_at(output), input.const_data_ptr(), input.nbytes());
  });
}

WorkPtr SharedExchange::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                       uint64_t fingerprint) {
  const auto reduction = reduction_of(input.scalar_type(), op);
  std::vector<shm::ByteRange> ranges;
  for (size_t rank = 0; rank < static_cast<size_t>(state_->member->size()); ++rank)
    ranges.push_back({rank * output.nbytes(), (rank + 1) * output.nbytes()});
  return start_shared_task(
      state_, fingerprint,
      [=, ranges = std::move(ranges)](shm::Collectives& collectives, const shm::Call& call) {
        collectives.reduce(call, bytes_at(output), input.const_data_ptr(), input.nbytes(), ranges, reduction);
      });
}

WorkPtr SharedExchange::reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned,
                                         const OwnSum& own, uint64_t fingerprint) {
  auto reduction = reduction_of(tensor.scalar_type(), ReduceOp::kSum);
  const bool at_once = own.result.defined() && kernels::can_scale(reduction.type);
  if (at_once) reduction.factor = own.factor;
  const size_t element = tensor.element_size();
  std::vector<shm::ByteRange> ranges;
  for (const Interval& interval : owned) {
    if (interval.empty()) {  // which may begin anywhere
      ranges.push_back({0, 0});
    } else {
      ranges.push_back(
          {static_cast<size_t>(interval.begin) * element, static_cast<size_t>(interval.end) * element});
    }
  }
  const auto rank = static_cast<size_t>(state_->member->rank());
  const size_t begin = ranges[rank].begin;
  return start_shared_task(
      state_, fingerprint,
      [=, ranges = std::move(ranges)](shm::Collectives& collectives, const shm::Call& call) {
        char* const to = at_once ? bytes_at(own.result) : bytes_at(tensor) + begin;
        collectives.reduce(call, to, tensor.const_data_ptr(), tensor.nbytes(), ranges, reduction);
        if (!at_once) put_own_sum(own, tensor, owned[rank]);
      });
}

WorkPtr SharedExchange::all_to_all(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint) {
  const auto size = static_cast<size_t>(state_->member->size());
  return start_shared_task(state_, fingerprint, [=](shm::Collectives& collectives, const shm::Call& call) {
    collectives.all_to_all(call, bytes_at(output), input.const_data_ptr(), input.nbytes() / size);
  });
}

WorkPtr SharedExchange::barrier(uint64_t fingerprint) {
  return start_shared_task(state_, fingerprint, [](shm::Collectives& collectives, const shm::Call& call) {
    collectives.barrier(call);
  });
}

WorkPtr SharedExchange::send(const at::Tensor& tensor, int peer, int tag) {
  if (state_->member->gave_up()) raise<CommError>("the group was given up");
  auto work = c10::make_intrusive<SharedWork>();
  state_->messages.send(tensor.const_data_ptr(), tensor.nbytes(), peer, tag, state_->deadline(),
                        [work, tensor](std::exception_ptr error) { work->end(error); });
  return work;
}

WorkPtr SharedExchange::receive(const at::Tensor& tensor, int peer, int tag) {
  if (state_->member->gave_up()) raise<CommError>("the group was given up");
  auto work = c10::make_intrusive<SharedWork>();
  state_->messages.receive(bytes_at(tensor), tensor.nbytes(), peer, tag, state_->deadline(),
                           [work, tensor](std::exception_ptr error) { work->end(error); });
  return work;
}

}  // namespace deepspeed::comm
