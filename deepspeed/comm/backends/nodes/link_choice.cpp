#include "deepspeed/comm/backends/nodes/link_choice.h"

#include <type_traits>
#include <variant>

namespace deepspeed::comm {
namespace {

double microseconds(double bytes, double gbps) { return bytes * 8 / (gbps * 1000); }

template <class Call>
constexpr bool kGoesByNodes =
    std::is_same_v<Call, operations::AllReduce> || std::is_same_v<Call, operations::AllGather> ||
    std::is_same_v<Call, operations::ReduceScatter> || std::is_same_v<Call, operations::ReduceToOwners>;

bool can_go_by_nodes(const Operation& operation) {
  return std::visit([](const auto& call) { return kGoesByNodes<std::decay_t<decltype(call)>>; }, operation);
}

}  // namespace

WayTimes estimate(const LinkFigures& links, const NodeShape& shape, bool is_all_reduce, int64_t bytes) {
  const double nodes = shape.num_nodes, places = shape.places;
  const double part = double(bytes) / (nodes * places);
  const auto within = [&](double received) { return microseconds(received, links.within_node.gbps); };
  const auto between = [&](double received) {
    return microseconds(received * places, links.between_nodes.gbps);
  };
  const double flat =
      links.between_nodes.latency_us + between((nodes - 1) * places * part) + within((places - 1) * part);
  const double by_nodes = links.between_nodes.latency_us + between((nodes - 1) * part) +
                          links.within_node.latency_us + within((places - 1) * nodes * part);
  // Reordering in memory is at least as fast as sending within a node.
  const double in_order = within(double(bytes));
  if (is_all_reduce) return {2 * flat, 2 * by_nodes};
  return {flat, by_nodes + in_order};
}

bool is_faster_by_nodes(const LinkFigures& links, const NodeShape& shape, const Operation& operation) {
  if (!can_go_by_nodes(operation)) return false;
  const auto bytes = int64_t(whole_tensor_of(operation).nbytes());
  const WayTimes times =
      estimate(links, shape, std::holds_alternative<operations::AllReduce>(operation), bytes);
  return times.by_nodes < times.flat;
}

}  // namespace deepspeed::comm
