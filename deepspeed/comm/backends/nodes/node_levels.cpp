// Implements collectives between N nodes of L ranks, with n elements per rank, in these steps:
//
// - all_gather: the ranks at place l, their index in the node, gather N inputs. The ranks of a node exchange
//   their results, which arrive as (L, N, n) and are transposed to (N, L, n).
// - reduce_scatter: the reverse. The input is transposed to (L, N, n) and summed within the node. Then each
//   place's N parts are summed between nodes.
// - reduce_to_owners: like reduce_scatter, with parts of any size, packed by place.
// - all_reduce: a reduce_scatter within the node, an all_reduce of the parts between nodes, an all_gather
//   within the node.
//
// All steps of a call run on the group's thread, one call after the other, with the call's tag.
#include "deepspeed/comm/backends/nodes/node_levels.h"

#include <utility>
#include <variant>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/comm/backends/connection.h"

namespace deepspeed::comm {

struct NodeLevels::Ways {
  Connection node, across;

  void abort() {
    node.abort();
    across.abort();
  }
};

namespace {

int64_t numel_of(const Interval& interval) { return interval.empty() ? 0 : interval.numel(); }

/// Runs the steps of one call, each to its end, over two connections.
class NodeSteps {
 public:
  NodeSteps(Connection& node, Connection& across, CallHistory::Progress call)
      : node_(node), across_(across), call_(call) {}

  void operator()(const operations::AllReduce& call) const {
    const at::Tensor flat = call.tensor.detach().view({-1});
    const int64_t numel = flat.numel(), part = (numel + places() - 1) / places();
    const bool is_even = numel % places() == 0;
    const at::Tensor whole = is_even ? flat : at::zeros({part * places()}, flat.options());
    if (!is_even) whole.narrow(0, 0, numel).copy_(flat);
    const at::Tensor sum = at::empty({part}, flat.options());
    run(node_, operations::ReduceScatter{sum, whole, call.op});
    run(across_, operations::AllReduce{sum, call.op});
    run(node_, operations::AllGather{whole, sum});
    if (!is_even) flat.copy_(whole.narrow(0, 0, numel));
  }

  void operator()(const operations::AllGather& call) const {
    const at::Tensor input = call.input.detach().view({-1});
    const int64_t numel = input.numel();
    const at::Tensor of_place = at::empty({nodes() * numel}, input.options());
    run(across_, operations::AllGather{of_place, input});
    const at::Tensor by_place = at::empty({places() * nodes() * numel}, input.options());
    run(node_, operations::AllGather{by_place, of_place});
    call.output.detach()
        .view({nodes(), places(), numel})
        .copy_(by_place.view({places(), nodes(), numel}).transpose(0, 1));
  }

  void operator()(const operations::ReduceScatter& call) const {
    const at::Tensor output = call.output.detach().view({-1});
    const int64_t numel = output.numel();
    const at::Tensor by_place = at::empty({places(), nodes(), numel}, output.options());
    by_place.copy_(call.input.detach().view({nodes(), places(), numel}).transpose(0, 1));
    const at::Tensor of_place = at::empty({nodes() * numel}, output.options());
    run(node_, operations::ReduceScatter{of_place, by_place, call.op});
    run(across_, operations::ReduceScatter{output, of_place, call.op});
  }

  void operator()(const operations::ReduceToOwners& call) const {
    const at::Tensor flat = call.tensor.detach().view({-1});
    int64_t numel = 0;
    for (const Interval& interval : call.owned) numel += numel_of(interval);
    if (numel == 0) return;
    const at::Tensor packed = at::empty({numel}, flat.options());
    std::vector<Interval> of_places, of_nodes;  // within `packed`; within this place's part of it
    int64_t end = 0;
    for (int64_t place = 0; place < places(); ++place) {
      const int64_t begin = end;
      for (int64_t node = 0; node < nodes(); ++node) {
        const Interval& from = call.owned[size_t(node * places() + place)];
        if (place == node_.c10d_group()->getRank())
          of_nodes.push_back({end - begin, end - begin + numel_of(from)});
        if (from.empty()) continue;
        packed.narrow(0, end, from.numel()).copy_(flat.narrow(0, from.begin, from.numel()));
        end += from.numel();
      }
      of_places.push_back({begin, end});
    }
    run(node_, operations::ReduceToOwners{packed, of_places});
    const Interval& part = of_places[size_t(node_.c10d_group()->getRank())];
    if (part.empty()) return;  // it is empty for this place on all nodes
    const at::Tensor sums = packed.narrow(0, part.begin, part.numel());
    run(across_, operations::ReduceToOwners{sums, of_nodes});
    const int node = across_.c10d_group()->getRank();
    const Interval& own = of_nodes[size_t(node)];
    if (own.empty()) return;
    const Interval& to = call.owned[size_t(node * places() + node_.c10d_group()->getRank())];
    const OwnSum in_place{flat.narrow(0, to.begin, to.numel())};
    put_own_sum(call.own.result.defined() ? call.own : in_place, sums, own);
  }

  template <class Other>
  void operator()(const Other& call) const {
    raise<Error>(call.kName, " has no steps by nodes");
  }

 private:
  int64_t nodes() const { return across_.c10d_group()->getSize(); }
  int64_t places() const { return node_.c10d_group()->getSize(); }

  // A connection's ranks run the steps of one call in the same order, so the steps can share a tag.
  void run(Connection& connection, const Operation& step) const {
    const Started started = connection.start(step, at::kCPU, call_);
    for (const auto& work : started.works) work->wait();
    if (started.finish) started.finish();
  }

  Connection& node_;
  Connection& across_;
  CallHistory::Progress call_;
};

}  // namespace

NodeLevels::NodeLevels(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> node,
                       c10::intrusive_ptr<c10d::ProcessGroup> across, const LinkFigures& links,
                       std::chrono::milliseconds timeout)
    : ways_(new Ways{{backend, std::move(node), timeout}, {backend, std::move(across), timeout}}),
      links_(links),
      shape_{ways_->across.c10d_group()->getSize(), ways_->node.c10d_group()->getSize()},
      queue_([ways = ways_] { ways->abort(); }) {}

Started NodeLevels::start(const Operation& operation, CallHistory::Progress call) {
  return {{queue_.run([ways = ways_, operation, call] {
            try {
              std::visit(NodeSteps(ways->node, ways->across, call), operation);
            } catch (...) {
              ways->abort();  // ranks waiting in the other step notice it at once
              throw;
            }
          })},
          nullptr};
}

void NodeLevels::abort() { ways_->abort(); }

}  // namespace deepspeed::comm
