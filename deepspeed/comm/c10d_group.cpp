#include "deepspeed/comm/c10d_group.h"

#include <iomanip>
#include <thread>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/failure.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long ranks that did not fail yet have to report before they are named as dead or hanging.
constexpr milliseconds kGrace(2000);

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string in_seconds(milliseconds time) {
  std::ostringstream out;
  out << std::setprecision(3) << static_cast<double>(time.count()) / 1000.0 << " s";
  return out.str();
}

class C10dWork : public Work::Impl {
 public:
  C10dWork(const char* collective, Started started, std::shared_ptr<C10dGroup> group)
      : collective_(collective), started_(std::move(started)), group_(std::move(group)) {}

  void wait() override {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    const auto begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration_cast<milliseconds>(Clock::now() - begin); };
    const auto timeout = group_->description().timeout;
    try {
      for (const auto& work : started_.works) {
        // With a time, NCCL's wait would block this thread too. Zero would mean "for ever" to Gloo's.
        work->wait(started_.on_stream ? kNoTimeout : std::max(timeout - elapsed(), milliseconds(1)));
        // NCCL reports an aborted communicator here, not from wait().
        if (const auto error = work->exception()) std::rethrow_exception(error);
      }
    } catch (const std::exception& error) {
      group_->fail(collective_, elapsed(), first_line(error.what()));
    }
    if (started_.finish) started_.finish();
    started_ = {};
    done_ = true;
  }

  bool is_completed() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& work : started_.works) {
      if (!work->isCompleted()) return false;
    }
    return true;
  }

 private:
  const char* collective_;
  mutable std::mutex mutex_;
  bool done_ = false;
  Started started_;
  std::shared_ptr<C10dGroup> group_;  // keeps the connections of the operation open
};

}  // namespace

C10dGroup::C10dGroup(GroupDescription description, c10::intrusive_ptr<c10d::ProcessGroup> group,
                     c10::intrusive_ptr<c10d::Store> store)
    : Impl(std::move(description)), group_(std::move(group)), store_(std::move(store)) {
  const auto on_cpu = group_->getBackend(at::kCPU);
  if (on_cpu->getBackendName() == "gloo") {
    direct_ = std::make_unique<DirectExchange>(on_cpu, this->description().timeout);
  }
}

C10dGroup::~C10dGroup() {
  try {
    group_->abort();
  } catch (const std::exception&) {
    // A connection that is broken already needs no abort.
  }
  // c10d's destructor waits for operations that started before or beside the abort, up to their timeout. They
  // hold all that they need, so that wait is left to a thread of its own.
  if (has_unfinished_operations())
    std::thread([group = std::move(group_)]() mutable { group.reset(); }).detach();
}

void C10dGroup::remember(const Started& started) {
  const std::lock_guard lock(operations_mutex_);
  std::erase_if(operations_, [](const auto& operation) {
    const auto work = operation.lock();
    return !work || work->isCompleted();
  });
  for (const auto& work : started.works) operations_.emplace_back(work);
}

bool C10dGroup::has_unfinished_operations() {
  remember({});
  return !operations_.empty();
}

c10::intrusive_ptr<c10d::Backend> C10dGroup::backend_for(const at::Tensor& tensor) const {
  return group_->getBackend(tensor.device().type());
}

Route C10dGroup::route_for(const at::Tensor& tensor) {
  return {*backend_for(tensor), tensor.is_cpu() ? direct_.get() : nullptr, description().timeout};
}

Work C10dGroup::start(const char* collective, at::DeviceType device,
                      const std::function<Started()>& operations) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.empty()) {
      raise<CommError>("comm", collective, " of group '", description().name,
                       "' cannot run, an earlier collective failed: ", failure_);
    }
  }
  try {
    auto started = operations();
    started.on_stream = device != at::kCPU;
    remember(started);
    return Work(std::make_shared<C10dWork>(collective, std::move(started), shared_from_this()));
  } catch (const std::exception& error) {
    fail(collective, milliseconds(0), first_line(error.what()));
  }
}

void C10dGroup::fail(const char* collective, milliseconds elapsed, const std::string& reason) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) {
    const auto abort = [this] { group_->abort(); };
    const auto culprits = blame(description(), store_, abort, kGrace);
    failure_ = message("[comm] ", collective, " of group '", description().name, "' failed on rank ",
                       description().rank, " of ", description().size(), " after ", in_seconds(elapsed), ": ",
                       culprits, " (", reason, ")");
  }
  throw CommError(failure_);
}

Work C10dGroup::start_all_reduce(const at::Tensor& tensor, ReduceOp op) {
  return start("all_reduce", tensor.device().type(),
               [&] { return all_reduce_on(route_for(tensor), tensor, op); });
}

Work C10dGroup::start_broadcast(const at::Tensor& tensor, int root) {
  return start("broadcast", tensor.device().type(),
               [&] { return broadcast_on(route_for(tensor), tensor, root); });
}

Work C10dGroup::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  return start("all_gather", output.device().type(),
               [&] { return all_gather_on(route_for(output), output, input); });
}

Work C10dGroup::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return start("reduce_scatter", input.device().type(),
               [&] { return reduce_scatter_on(route_for(input), output, input, op); });
}

Work C10dGroup::start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) {
  return start("reduce_to_owners", tensor.device().type(),
               [&] { return reduce_to_owners_on(route_for(tensor), tensor, owned); });
}

Work C10dGroup::start_all_to_all(const at::Tensor& output, const at::Tensor& input) {
  return start("all_to_all", input.device().type(),
               [&] { return all_to_all_on(route_for(input), output, input); });
}

Work C10dGroup::start_send(const at::Tensor& tensor, int destination, int tag) {
  return start("send", tensor.device().type(), [&] {
    std::vector<at::Tensor> tensors{bytes_of(tensor)};
    return Started{{backend_for(tensor)->send(tensors, destination, tag)}, nullptr};
  });
}

Work C10dGroup::start_recv(const at::Tensor& tensor, int source, int tag) {
  return start("recv", tensor.device().type(), [&] {
    std::vector<at::Tensor> tensors{bytes_of(tensor)};
    return Started{{backend_for(tensor)->recv(tensors, source, tag)}, nullptr};
  });
}

Work C10dGroup::start_barrier() {
  return start("barrier", at::kCPU, [&] {
    c10d::BarrierOptions options;
    options.timeout = description().timeout;
    return Started{{group_->getBackend(at::kCPU)->barrier(options)}, nullptr};
  });
}

}  // namespace deepspeed::comm
