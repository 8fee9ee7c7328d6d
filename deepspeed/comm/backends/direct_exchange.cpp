// Exchanges blocks between ranks by Gloo's sends and receives.
//
// Operations are queued and run on the group's thread in the order of the calls. A sum starts to send every
// peer its interval in pieces, and keeps receives of a few pieces posted ahead. When all peers' parts of a
// piece are there, it adds them in rank order. It waits for the sends at the end. A gather posts all
// receives, then all sends. all_reduce() is a sum of equal intervals, followed by a gather. All waits of an
// operation share one deadline. abort() ends the current operation and all later ones.
#include "deepspeed/comm/backends/direct_exchange.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/base/system/clock.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;
using WorkPtr = DirectExchange::WorkPtr;

// Large enough that the cost of a message is small, and small enough that a received piece is added from the
// caches.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
// Number of pieces of each peer that may be in progress at once.
constexpr size_t kDepth = 4;
constexpr int kFirstTag = 1 << 30;
constexpr int kFingerprintBits = 20;
// Far more operations than two ranks can be apart.
constexpr int kNumNumbers = 1 << 10;

}  // namespace

struct DirectExchange::Group {
  c10::intrusive_ptr<c10d::Backend> backend;
  milliseconds timeout;
  std::mutex mutex;
  WorkPtr waited_for;  // by the thread of the queue
  bool aborted = false;

  void abort() {
    const std::lock_guard lock(mutex);
    aborted = true;
    if (waited_for) waited_for->abort();
  }
};

namespace {

/// Makes the sends and receives of one operation. All its waits share one deadline.
class Exchange {
 public:
  Exchange(std::shared_ptr<DirectExchange::Group> group, int tag)
      : group_(std::move(group)), tag_(tag), deadline_(Clock::now() + group_->timeout) {}

  int rank() const { return group_->backend->getRank(); }
  int size() const { return group_->backend->getSize(); }

  WorkPtr send(const at::Tensor& tensor, int peer) const {
    std::vector<at::Tensor> tensors{bytes_of(tensor)};
    return group_->backend->send(tensors, peer, tag_);
  }
  WorkPtr receive(const at::Tensor& tensor, int peer) const {
    std::vector<at::Tensor> tensors{bytes_of(tensor)};
    return group_->backend->recv(tensors, peer, tag_);
  }
  void wait(const WorkPtr& work) const {
    note_wait(work);
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    const bool done = work->wait(std::max(left, milliseconds(1)));
    note_wait(nullptr);
    if (!done) throw std::runtime_error(kAborted);
  }

 private:
  void note_wait(const WorkPtr& work) const {
    const std::lock_guard lock(group_->mutex);
    if (group_->aborted) throw std::runtime_error(kAborted);
    group_->waited_for = work;
  }

  static constexpr const char* kAborted = "the group was given up";
  std::shared_ptr<DirectExchange::Group> group_;
  int tag_;
  Clock::time_point deadline_;
};

at::Tensor elements(const at::Tensor& flat, const Interval& interval) {
  return flat.narrow(0, interval.begin, interval.numel());
}

/// Returns `interval`, elements of `flat`, cut into pieces of 1 MiB to send separately.
std::vector<Interval> pieces_of(const Interval& interval, const at::Tensor& flat) {
  const int64_t most = kPieceBytes / static_cast<int64_t>(flat.element_size());
  std::vector<Interval> pieces;
  for (int64_t begin = interval.begin; begin < interval.end; begin += most) {
    pieces.push_back({begin, std::min(begin + most, interval.end)});
  }
  return pieces;
}

std::vector<Interval> equal_intervals(int64_t numel, int size) {
  std::vector<Interval> intervals;
  for (int64_t rank = 0; rank < size; ++rank) {
    intervals.push_back({numel * rank / size, numel * (rank + 1) / size});
  }
  return intervals;
}

/// Starts to send every peer its interval of `flat`, in pieces. `intervals` has one per rank. Returns the
/// sends to wait for.
std::vector<WorkPtr> send_intervals(const Exchange& exchange, const at::Tensor& flat,
                                    const std::vector<Interval>& intervals) {
  std::vector<WorkPtr> sends;
  for (int step = 1; step < exchange.size(); ++step) {
    const int peer = (exchange.rank() + step) % exchange.size();
    for (const Interval& piece : pieces_of(intervals[peer], flat)) {
      sends.push_back(exchange.send(elements(flat, piece), peer));
    }
  }
  return sends;
}

/// Computes own = received[0] + ... + own + ... + received[size - 1], in this order; own is term `rank`.
void add_in_rank_order(const at::Tensor& own, const std::vector<at::Tensor>& received, int rank) {
  const auto term = [&](size_t of) { return static_cast<int>(of) == rank ? own : received[of]; };
  const bool is_narrow = own.element_size() == 2;
  if (received.size() == 2 && !is_narrow) {
    own.add_(received[1 - rank]);  // a + b == b + a
    return;
  }
  at::Tensor sum = is_narrow ? term(0).to(at::kFloat) : (rank == 0 ? own : received[0]);
  for (size_t of = 1; of < received.size(); ++of) sum.add_(term(of));
  if (!sum.is_same(own)) own.copy_(sum);
}

/// Adds the other ranks' tensors to `own`, which holds this rank's values, as they arrive.
void receive_sum(const Exchange& exchange, const at::Tensor& own) {
  const std::vector<Interval> pieces = pieces_of({0, own.numel()}, own);
  if (pieces.empty()) return;
  const auto size = static_cast<size_t>(exchange.size());
  const auto rank = static_cast<size_t>(exchange.rank());
  const size_t depth = std::min(kDepth, pieces.size());
  const at::Tensor staging =
      at::empty({static_cast<int64_t>(depth * size), pieces.front().numel()}, own.options());
  const auto stage = [&](size_t piece, size_t peer) {
    return staging[static_cast<int64_t>(piece % depth * size + peer)].narrow(0, 0, pieces[piece].numel());
  };
  std::vector<std::vector<WorkPtr>> receives(pieces.size());
  const auto post = [&](size_t piece) {
    for (size_t peer = 0; peer < size; ++peer) {
      receives[piece].push_back(peer == rank ? nullptr
                                             : exchange.receive(stage(piece, peer), static_cast<int>(peer)));
    }
  };
  for (size_t piece = 0; piece < depth; ++piece) post(piece);
  std::vector<at::Tensor> received(size);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    for (size_t peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      exchange.wait(receives[piece][peer]);
      received[peer] = stage(piece, peer);
    }
    receives[piece].clear();
    add_in_rank_order(elements(own, pieces[piece]), received, static_cast<int>(rank));
    if (piece + depth < pieces.size()) post(piece + depth);
  }
}

void wait_all(const Exchange& exchange, const std::vector<WorkPtr>& works) {
  for (const WorkPtr& work : works) exchange.wait(work);
}

void sum_intervals(const Exchange& exchange, const at::Tensor& flat, const std::vector<Interval>& owned) {
  const auto sends = send_intervals(exchange, flat, owned);
  const Interval own = owned[exchange.rank()];
  if (!own.empty()) receive_sum(exchange, elements(flat, own));  // an empty one may begin anywhere
  wait_all(exchange, sends);
}

void gather_intervals(const Exchange& exchange, const at::Tensor& flat, const std::vector<Interval>& owned) {
  const int rank = exchange.rank();
  std::vector<WorkPtr> works;
  for (int step = 1; step < exchange.size(); ++step) {
    const int from = (rank + exchange.size() - step) % exchange.size();
    if (!owned[from].empty()) works.push_back(exchange.receive(elements(flat, owned[from]), from));
  }
  for (int step = 1; step < exchange.size(); ++step) {
    const int to = (rank + step) % exchange.size();
    if (!owned[rank].empty()) works.push_back(exchange.send(elements(flat, owned[rank]), to));
  }
  wait_all(exchange, works);
}

}  // namespace

at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

int direct_tag(uint64_t number, uint32_t fingerprint) {
  return kFirstTag + (static_cast<int>(number % kNumNumbers) << kFingerprintBits) +
         static_cast<int>(fingerprint % (1U << kFingerprintBits));
}

DirectExchange::DirectExchange(c10::intrusive_ptr<c10d::Backend> backend, milliseconds timeout)
    : group_(std::make_shared<Group>()), queue_([group = group_] { group->abort(); }) {
  group_->backend = std::move(backend);
  group_->timeout = timeout;
}

void DirectExchange::abort() { group_->abort(); }

bool DirectExchange::can_sum(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

WorkPtr DirectExchange::all_reduce(const at::Tensor& tensor, int tag) {
  return queue_.run([group = group_, tag, flat = tensor.detach().view({-1})] {
    const Exchange exchange(group, tag);
    const auto owned = equal_intervals(flat.numel(), exchange.size());
    sum_intervals(exchange, flat, owned);
    gather_intervals(exchange, flat, owned);
  });
}

WorkPtr DirectExchange::reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned,
                                         int tag) {
  return queue_.run([group = group_, tag, flat = tensor.detach().view({-1}), owned] {
    sum_intervals(Exchange(group, tag), flat, owned);
  });
}

WorkPtr DirectExchange::reduce_scatter(const at::Tensor& output, const at::Tensor& input, int tag) {
  return queue_.run(
      [group = group_, tag, output = output.detach().view({-1}), input = input.detach().view({-1})] {
        const Exchange exchange(group, tag);
        const auto blocks = equal_intervals(input.numel(), exchange.size());
        const auto sends = send_intervals(exchange, input, blocks);
        output.copy_(elements(input, blocks[exchange.rank()]));
        receive_sum(exchange, output);
        wait_all(exchange, sends);
      });
}

WorkPtr DirectExchange::all_gather(const at::Tensor& output, int tag) {
  return queue_.run([group = group_, tag, flat = output.detach().view({-1})] {
    const Exchange exchange(group, tag);
    gather_intervals(exchange, flat, equal_intervals(flat.numel(), exchange.size()));
  });
}

WorkPtr DirectExchange::run_together(int tag, std::function<WorkPtr(c10d::Backend&)> operation) {
  return queue_.run([group = group_, tag, operation = std::move(operation)] {
    const Exchange exchange(group, tag);
    const at::Tensor bytes =
        at::zeros({exchange.size()}, at::kByte);  // one per rank; the values do not matter
    gather_intervals(exchange, bytes, equal_intervals(bytes.numel(), exchange.size()));
    exchange.wait(operation(*group->backend));
  });
}

}  // namespace deepspeed::comm
