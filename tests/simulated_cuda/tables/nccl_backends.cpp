// NCCL over the simulated device.
//
// An operation runs on a stream of the backend's own, behind what the current stream was given; messages
// between two ranks have a stream for each pair, and meet in the order in which both ranks start them,
// whatever their tags are. Gloo moves the bytes, beside the program. wait() makes the current stream wait,
// not the host (the thread itself does block until Gloo is done, which nobody can tell). As with c10d's own
// class, a work keeps its tensors until wait(). Sums are made in the order of the ranks.
//
// As NCCL, it connects ranks at the first operation of a group, and two ranks at their first message, which
// holds both threads: whoever waits in vain there would hang. An abort ends what the host does not know to be
// done, and what it was to write becomes poison. A failure that a test asks for comes when the host knows the
// operation to be over.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/GradMode.h>

#include "deepspeed/comm/backends/gloo.h"
#include "deepspeed/comm/backends/nccl.h"

#include "tests/simulated_cuda/device/call.h"
#include "tests/simulated_cuda/tables/tables.h"

namespace deepspeed::comm {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// What an operation has become on the device.
struct NcclStart {
  int device = -1;
  simulated::Clock done;
  std::vector<at::Tensor> in, out;  // as the CPU sees them
  std::vector<at::Tensor> kept;
};

class NcclWork final : public c10d::Work {
 public:
  NcclWork(c10d::OpType type, NcclStart start, WorkPtr gloo, std::function<void()> finish)
      : c10d::Work(-1, type), start_(std::move(start)), gloo_(std::move(gloo)), finish_(std::move(finish)) {}
  ~NcclWork() override {
    try {
      complete();
    } catch (const std::exception&) {
      // Nobody waits for it.
    }
  }
  bool isCompleted() override { return gloo_->isCompleted(); }
  bool isSuccess() const override { return gloo_->isSuccess(); }
  std::exception_ptr exception() const override { return gloo_->exception(); }
  bool wait(std::chrono::milliseconds) override {
    complete();
    if (start_.device < 0) {  // a barrier: the host waits
      const auto current = simulated::current_stream(-1);
      simulated::host_waits(simulated::clock_of(current), "a barrier");
    } else {
      simulated::stream_waits(simulated::current_stream(start_.device), start_.done);
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override {}

 private:
  void complete() {
    const std::lock_guard lock(mutex_);
    if (is_complete_) return;
    gloo_->wait();
    if (finish_) finish_();
    is_complete_ = true;
    start_.in.clear(), start_.out.clear(), start_.kept.clear();
    finish_ = {};
  }
  NcclStart start_;
  WorkPtr gloo_;
  std::function<void()> finish_;
  std::mutex mutex_;
  bool is_complete_ = false;
};

void combine(at::Tensor& result, const at::Tensor& term, const c10d::ReduceOp& op) {
  if (op == c10d::ReduceOp::MAX) {
    result = at::maximum(result, term);
  } else if (op == c10d::ReduceOp::MIN) {
    result = at::minimum(result, term);
  } else if (op == c10d::ReduceOp::PRODUCT) {
    result.mul_(term);
  } else {
    TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "NCCL has no such reduction");
    result.add_(term);
  }
}

/// What the device was given.
struct Given {
  simulated::Clock done;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> written;
};

constexpr std::chrono::seconds kPatience(30);  // to connect, which on a busy machine takes seconds

std::atomic<const char*> group_to_fail = nullptr;  // a part of its name

class NcclBackend final : public c10d::Backend {
 public:
  NcclBackend(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store,
              const GroupDescription& group)
      : c10d::Backend(group.rank, group.size()),
        name_(group.name),
        gloo_(std::move(gloo)),
        store_(std::move(store)) {}
  const std::string getBackendName() const override { return "nccl"; }
  void abort() override {
    gloo_->abort();
    const std::lock_guard lock(mutex_);
    for (const Given& given : given_) {
      if (!simulated::is_done(given.done)) spoil(given);
    }
    given_.clear();
  }
  void shutdown() override { gloo_->abort(); }
  c10d::ErrorType getError() override {
    const std::lock_guard lock(mutex_);
    return failed_ && simulated::is_done(*failed_) ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::SUCCESS;
  }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    NcclStart start = begin("nccl::all_reduce", {}, tensors);
    const at::Tensor own = start.out.front();
    return reduce(std::move(start), c10d::OpType::ALLREDUCE, options.reduceOp, own, own, 0);
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const bool is_root = options.rootRank == getRank();
    NcclStart start = is_root ? begin("nccl::broadcast", tensors, {}) : begin("nccl::broadcast", {}, tensors);
    std::vector<at::Tensor> all{is_root ? start.in.front() : start.out.front()};
    return end(std::move(start), c10d::OpType::BROADCAST, gloo_->broadcast(all, options));
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    const bool is_root = options.rootRank == getRank();
    NcclStart start = is_root ? begin("nccl::reduce", {}, tensors) : begin("nccl::reduce", tensors, {});
    const at::Tensor own = is_root ? start.out.front() : start.in.front();
    return reduce(std::move(start), c10d::OpType::REDUCE, options.reduceOp, own, is_root ? own : at::Tensor(),
                  0);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    NcclStart start = begin("nccl::all_gather", {input}, {output});
    at::Tensor out = start.out.front(), in = start.in.front();
    return end(std::move(start), c10d::OpType::_ALLGATHER_BASE, gloo_->_allgather_base(out, in, options));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    NcclStart start = begin("nccl::reduce_scatter", {input}, {output});
    const at::Tensor out = start.out.front(), in = start.in.front();
    return reduce(std::move(start), c10d::OpType::_REDUCE_SCATTER_BASE, options.reduceOp, in, out,
                  getRank() * out.numel());
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& out_sizes,
                        std::vector<int64_t>& in_sizes, const c10d::AllToAllOptions& options) override {
    NcclStart start = begin("nccl::all_to_all", {input}, {output});
    at::Tensor out = start.out.front(), in = start.in.front();
    return end(std::move(start), c10d::OpType::ALLTOALL_BASE,
               gloo_->alltoall_base(out, in, out_sizes, in_sizes, options));
  }
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int) override {
    NcclStart start = begin("nccl::send", tensors, {}, to);
    std::vector<at::Tensor> in{start.in.front()};
    return end(std::move(start), c10d::OpType::SEND, gloo_->send(in, to, next_message(to)));
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int) override {
    NcclStart start = begin("nccl::recv", {}, tensors, from);
    std::vector<at::Tensor> out{start.out.front()};
    return end(std::move(start), c10d::OpType::RECV, gloo_->recv(out, from, next_message(from)));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return end({}, c10d::OpType::BARRIER, gloo_->barrier(options));
  }

 private:
  static constexpr int kAll = -1;

  /// peer: of a message; kAll: a collective.
  NcclStart begin(const char* name, const std::vector<at::Tensor>& reads,
                  const std::vector<at::Tensor>& writes, int peer = kAll) {
    TORCH_CHECK(getError() == c10d::ErrorType::SUCCESS, "NCCL communicator was aborted on rank ", getRank());
    connect(peer);
    NcclStart start;
    start.device = (reads.empty() ? writes : reads).front().get_device();
    const c10::Stream stream = stream_of(start.device, peer);
    simulated::stream_waits(stream, simulated::clock_of(simulated::current_stream(start.device)));
    simulated::Call call(name);
    for (const at::Tensor& tensor : reads) start.in.push_back(call.on_cpu(tensor, false));
    for (const at::Tensor& tensor : writes) start.out.push_back(call.on_cpu(tensor, true));
    start.kept = reads;
    start.kept.insert(start.kept.end(), writes.begin(), writes.end());
    call.launch_on(stream);
    start.done = simulated::clock_of(stream);
    note(start, writes);
    return start;
  }

  /// Meets the ranks of an operation where they have not met before.
  void connect(int peer) {
    {
      const std::lock_guard lock(mutex_);
      if (!connected_.insert(peer).second) return;
    }
    std::vector<int> others;
    for (int rank = 0; rank < getSize(); ++rank)
      if (rank != getRank() && (peer == kAll || rank == peer)) others.push_back(rank);
    const auto key = [&](int from, int to) {
      return "connects/" + std::to_string(from) + "/" + (peer == kAll ? "all" : std::to_string(to));
    };
    store_->set(key(getRank(), peer), std::vector<uint8_t>{1});
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (const int other : others) {
      while (!store_->check({key(other, getRank())})) {
        TORCH_CHECK(std::chrono::steady_clock::now() < end, "NCCL: rank ", getRank(), " waits for rank ",
                    other, " to connect, which holds its thread");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void note(const NcclStart& start, const std::vector<at::Tensor>& writes) {
    const std::lock_guard lock(mutex_);
    std::erase_if(given_, [](const Given& given) { return simulated::is_done(given.done); });
    Given& given = given_.emplace_back(Given{start.done, {}});
    for (const at::Tensor& tensor : writes) given.written.emplace_back(tensor.storage().getWeakStorageImpl());
    const char* const group = group_to_fail;
    if (group == nullptr || name_.find(group) == std::string::npos) return;
    group_to_fail = nullptr;
    failed_ = start.done;
  }

  static void spoil(const Given& given) {
    for (const auto& weak : given.written) {
      const auto storage = weak.lock();
      if (storage && storage->nbytes() > 0)
        std::memset(simulated::bytes_at(storage->data()), simulated::kPoison, storage->nbytes());
    }
  }

  WorkPtr end(NcclStart start, c10d::OpType type, WorkPtr gloo, std::function<void()> finish = {}) {
    return c10::make_intrusive<NcclWork>(type, std::move(start), std::move(gloo), std::move(finish));
  }

  /// The reduction of all ranks' `in`, in the order of the ranks, so that all have the same bits: its
  /// elements from `first` on become `out`, where that is defined.
  WorkPtr reduce(NcclStart start, c10d::OpType type, const c10d::ReduceOp& op, const at::Tensor& in,
                 const at::Tensor& out, int64_t first) {
    const at::Tensor all = at::empty({getSize(), in.numel()}, in.options());
    at::Tensor all_bytes = all.view({-1}).view(at::kByte), bytes = in.reshape({-1}).view(at::kByte);
    const auto finish = [=] {
      if (!out.defined()) return;
      const c10::NoGradGuard no_grad;
      const bool is_narrow = in.scalar_type() == at::kHalf || in.scalar_type() == at::kBFloat16;
      const at::Tensor terms =
          all.narrow(1, first, out.numel()).to(is_narrow ? at::kFloat : in.scalar_type());
      at::Tensor result = terms[0].clone();
      for (int64_t rank = 1; rank < terms.size(0); ++rank) combine(result, terms[rank], op);
      if (op == c10d::ReduceOp::AVG) result.div_(terms.size(0));
      out.view({-1}).copy_(result);
    };
    return end(std::move(start), type, gloo_->_allgather_base(all_bytes, bytes, {}), finish);
  }

  c10::Stream stream_of(int device, int peer) {
    const std::lock_guard lock(mutex_);
    return streams_.try_emplace({device, peer}, simulated::next_stream(device)).first->second;
  }
  int next_message(int peer) {
    const std::lock_guard lock(mutex_);
    return num_messages_[peer]++;
  }

  const std::string name_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::set<int> connected_;                             // peers; kAll: the ranks of the group
  std::vector<Given> given_;                            // that the host does not know to be done
  std::optional<simulated::Clock> failed_;              // when an operation failed
  std::map<std::pair<int, int>, c10::Stream> streams_;  // by device and peer
  std::map<int, int> num_messages_;                     // by peer
};

c10::intrusive_ptr<c10d::Backend> make(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                       const GroupDescription& group) {
  return c10::make_intrusive<NcclBackend>(make_gloo_backend(job, store, group), store, group);
}

int minor_of_torch = 28;

}  // namespace
}  // namespace deepspeed::comm

namespace deepspeed::simulated {

void fail_next_nccl_operation(const char* group) { comm::group_to_fail = group; }
void pretend_nccl_of_torch(int minor) { comm::minor_of_torch = minor; }

const comm::NcclBackends nccl_backends{.make = &comm::make, .versions = [] {
                                         return comm::NcclVersions{{2, 28}, {2, comm::minor_of_torch}};
                                       }};

}  // namespace deepspeed::simulated
