// Turns operations of a group into operations of a backend.
//
// start_on() visits the operation. With a direct exchange (Gloo), sums of floating point types, gathers and
// reductions to owners use it. Averages are sums that are divided here at the end, 16-bit types in fp32.
// Everything else is an operation of the backend, started after all ranks have met. Without a direct exchange
// (NCCL), each is an operation of the backend; reductions to unequal owners are one reduce per rank.
// Operations that only move data treat it as bytes.
#include "deepspeed/comm/backends/collectives.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/interval.h"

namespace deepspeed::comm {
namespace {

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kBand:
      return c10d::ReduceOp::BAND;
    case ReduceOp::kBor:
      return c10d::ReduceOp::BOR;
    case ReduceOp::kBxor:
      return c10d::ReduceOp::BXOR;
    case ReduceOp::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

bool sums_directly(const Route& route, const at::Tensor& tensor, ReduceOp op) {
  return route.direct != nullptr && op == ReduceOp::kSum && DirectExchange::can_sum(tensor.scalar_type());
}

// Gloo has no arithmetic for 16-bit integers.
at::ScalarType gloo_reduction_type(at::ScalarType type) { return type == at::kShort ? at::kInt : type; }

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Runs an operation of the backend. Gloo does not notice that a rank calls something else, so all ranks meet
// first.
WorkPtr run_on(const Route& route, std::function<WorkPtr(c10d::Backend&)> operation) {
  return route.direct != nullptr ? route.direct->run_together(route.tag, std::move(operation))
                                 : operation(route.backend);
}

WorkPtr start_all_reduce(const Route& route, const at::Tensor& tensor, ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = route.timeout;
  return run_on(route, [=](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{tensor};
    return backend.allreduce(tensors, options);
  });
}

at::Tensor block(const at::Tensor& whole, int rank, int size) {
  const auto numel = whole.numel() / size;
  return whole.view({-1}).narrow(0, rank * numel, numel);
}

// Reduces what direct exchange cannot: integers, and operations other than sums. The input must not change,
// so a copy is reduced.
Started gloo_reduce_scatter(const Route& route, const at::Tensor& output, const at::Tensor& input,
                            ReduceOp op) {
  const auto sum = input.to(gloo_reduction_type(input.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  const int rank = route.backend.getRank();
  const int size = route.backend.getSize();
  return {{start_all_reduce(route, sum, op)}, [=] {
            c10::NoGradGuard no_grad;
            output.view({-1}).copy_(block(sum, rank, size));
          }};
}

bool averages_by_hand(const Route& route, ReduceOp op) {
  return route.direct != nullptr && op == ReduceOp::kAvg;
}

// 16-bit types are summed and divided in fp32, because their sum could overflow even if the average does not.
at::ScalarType average_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// Divides `sum` after `started` is done and stores it in `result`, which may be the same tensor.
Started then_average(Started started, const at::Tensor& sum, const at::Tensor& result, int size) {
  started.finish = [=, earlier = std::move(started.finish)] {
    const c10::NoGradGuard no_grad;
    if (earlier) earlier();
    sum.div_(size);
    if (sum.const_data_ptr() != result.const_data_ptr()) result.copy_(sum);
  };
  return started;
}

Started all_reduce_on(const Route& route, const at::Tensor& tensor, ReduceOp op);
Started reduce_scatter_on(const Route& route, const at::Tensor& output, const at::Tensor& input, ReduceOp op);

Started average_all(const Route& route, const at::Tensor& tensor) {
  const auto sum = tensor.detach().to(average_type(tensor.scalar_type()));
  return then_average(all_reduce_on(route, sum, ReduceOp::kSum), sum, tensor, route.backend.getSize());
}

Started average_blocks(const Route& route, const at::Tensor& output, const at::Tensor& input) {
  const auto type = average_type(input.scalar_type());
  const auto sum = output.detach().to(type);
  return then_average(reduce_scatter_on(route, sum, input.detach().to(type), ReduceOp::kSum), sum, output,
                      route.backend.getSize());
}

/// Returns whether the intervals are equal blocks, one per rank, that cover `numel` elements.
bool are_equal_blocks(const std::vector<Interval>& owned, int64_t numel) {
  const int64_t size = static_cast<int64_t>(owned.size());
  for (int64_t rank = 0; rank < size; ++rank) {
    if (numel % size != 0 || owned[rank] != Interval{rank * (numel / size), (rank + 1) * (numel / size)})
      return false;
  }
  return true;
}

Started all_reduce_on(const Route& route, const at::Tensor& tensor, ReduceOp op) {
  if (averages_by_hand(route, op)) return average_all(route, tensor);
  if (sums_directly(route, tensor, op)) return {{route.direct->all_reduce(tensor, route.tag)}, nullptr};
  const auto wide = gloo_reduction_type(tensor.scalar_type());
  if (route.direct == nullptr || wide == tensor.scalar_type()) {
    return {{start_all_reduce(route, tensor.detach(), op)}, nullptr};
  }
  const auto sum = tensor.detach().to(wide);
  return {{start_all_reduce(route, sum, op)}, [=] {
            c10::NoGradGuard no_grad;
            tensor.copy_(sum);
          }};
}

Started broadcast_on(const Route& route, const at::Tensor& tensor, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = route.timeout;
  return {{run_on(route,
                  [=, bytes = bytes_of(tensor)](c10d::Backend& backend) {
                    std::vector<at::Tensor> tensors{bytes};
                    return backend.broadcast(tensors, options);
                  })},
          nullptr};
}

Started all_gather_on(const Route& route, const at::Tensor& output, const at::Tensor& input) {
  c10::NoGradGuard no_grad;
  if (route.direct == nullptr) {
    c10d::AllgatherOptions options;
    options.timeout = route.timeout;
    auto out = bytes_of(output);
    auto in = bytes_of(input);
    return {{route.backend._allgather_base(out, in, options)}, nullptr};
  }
  const auto own = block(output, route.backend.getRank(), route.backend.getSize());
  if (own.const_data_ptr() != input.const_data_ptr()) own.copy_(input.view({-1}));
  return {{route.direct->all_gather(output, route.tag)}, nullptr};
}

Started reduce_scatter_on(const Route& route, const at::Tensor& output, const at::Tensor& input,
                          ReduceOp op) {
  c10::NoGradGuard no_grad;
  if (averages_by_hand(route, op)) return average_blocks(route, output, input);
  if (sums_directly(route, input, op))
    return {{route.direct->reduce_scatter(output, input, route.tag)}, nullptr};
  if (route.direct != nullptr) return gloo_reduce_scatter(route, output, input.detach(), op);
  c10d::ReduceScatterOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = route.timeout;
  auto out = output.detach().view({-1});
  auto in = input.detach().view({-1});
  return {{route.backend._reduce_scatter_base(out, in, options)}, nullptr};
}

Started reduce_in_place(const Route& route, const at::Tensor& tensor, const std::vector<Interval>& owned) {
  if (sums_directly(route, tensor, ReduceOp::kSum))
    return {{route.direct->reduce_to_owners(tensor, owned, route.tag)}, nullptr};
  if (route.direct != nullptr) return all_reduce_on(route, tensor, ReduceOp::kSum);  // integers
  const auto flat = tensor.detach().view({-1});
  const auto part = [&](int rank) { return flat.narrow(0, owned[rank].begin, owned[rank].numel()); };
  if (are_equal_blocks(owned, flat.numel())) {
    return reduce_scatter_on(route, part(route.backend.getRank()), flat, ReduceOp::kSum);
  }
  Started started;
  for (int rank = 0; rank < route.backend.getSize(); ++rank) {
    if (owned[rank].empty()) continue;
    c10d::ReduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.rootRank = rank;
    options.timeout = route.timeout;
    std::vector<at::Tensor> tensors{part(rank)};
    started.works.push_back(route.backend.reduce(tensors, options));
  }
  return started;
}

Started reduce_to_owners_on(const Route& route, const operations::ReduceToOwners& call) {
  Started started = reduce_in_place(route, call.tensor, call.owned);
  if (!call.own.result.defined()) return started;
  started.finish = [=, earlier = std::move(started.finish), interval = call.owned[route.backend.getRank()]] {
    if (earlier) earlier();
    put_own_sum(call.own, call.tensor, interval);
  };
  return started;
}

Started barrier_on(const Route& route) {
  c10d::BarrierOptions options;
  options.timeout = route.timeout;
  return {{run_on(route, [=](c10d::Backend& backend) { return backend.barrier(options); })}, nullptr};
}

Started all_to_all_on(const Route& route, const at::Tensor& output, const at::Tensor& input) {
  c10d::AllToAllOptions options;
  options.timeout = route.timeout;
  return {{run_on(route,
                  [options, out = bytes_of(output), in = bytes_of(input)](c10d::Backend& backend) mutable {
                    std::vector<int64_t> equal_blocks;
                    return backend.alltoall_base(out, in, equal_blocks, equal_blocks, options);
                  })},
          nullptr};
}

class StartOn {
 public:
  explicit StartOn(const Route& route) : route_(route) {}

  Started operator()(const operations::AllReduce& call) const {
    return all_reduce_on(route_, call.tensor, call.op);
  }
  Started operator()(const operations::Broadcast& call) const {
    return broadcast_on(route_, call.tensor, call.root);
  }
  Started operator()(const operations::AllGather& call) const {
    return all_gather_on(route_, call.output, call.input);
  }
  Started operator()(const operations::ReduceScatter& call) const {
    return reduce_scatter_on(route_, call.output, call.input, call.op);
  }
  Started operator()(const operations::ReduceToOwners& call) const {
    return reduce_to_owners_on(route_, call);
  }
  Started operator()(const operations::AllToAll& call) const {
    return all_to_all_on(route_, call.output, call.input);
  }
  Started operator()(const operations::Barrier&) const { return barrier_on(route_); }
  Started operator()(const operations::Send& call) const {
    std::vector<at::Tensor> tensors{bytes_of(call.tensor)};
    return {{route_.backend.send(tensors, call.destination, call.tag)}, nullptr};
  }
  Started operator()(const operations::Recv& call) const {
    std::vector<at::Tensor> tensors{bytes_of(call.tensor)};
    return {{route_.backend.recv(tensors, call.source, call.tag)}, nullptr};
  }
  // The barrier is in the store (monitored_barrier.h), so the backend does nothing.
  Started operator()(const operations::MonitoredBarrier&) const { return {}; }

 private:
  const Route& route_;
};

}  // namespace

Started start_on(const Route& route, const Operation& operation) {
  return std::visit(StartOn(route), operation);
}

}  // namespace deepspeed::comm
