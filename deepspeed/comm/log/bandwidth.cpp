#include "deepspeed/comm/log/bandwidth.h"

#include <map>

namespace deepspeed::comm {
namespace {

bool is_in_parts(std::string_view operation) {
  return operation == "all_gather" || operation == "reduce_scatter" || operation == "reduce_to_owners" ||
         operation == "all_to_all" || operation == "all_reduce";
}

LinkBytes received_by_nodes(const Links& links, double part) {
  std::map<int, int> ranks_of;  // by node
  for (const int rank : links.global_ranks) ++ranks_of[rank / links.ranks_per_node];
  const double nodes = double(ranks_of.size());
  const double places = ranks_of.at(links.global_ranks[size_t(links.rank)] / links.ranks_per_node);
  return {.within_node = (places - 1) * nodes * part, .between_nodes = (nodes - 1) * part};
}

}  // namespace

Bandwidth bandwidth_of(std::string_view operation, int64_t bytes, double milliseconds, int num_ranks) {
  if (milliseconds <= 0) return {};
  const double times = operation == "all_reduce" ? 2 : 1;
  const double algorithm = times * double(bytes) * 8 / (milliseconds * 1e6);
  return {algorithm, is_in_parts(operation) ? algorithm * (num_ranks - 1) / num_ranks : algorithm};
}

LinkBytes received_bytes(std::string_view operation, int64_t bytes, const Links& links) {
  const auto node_of = [&](int index) { return links.global_ranks[size_t(index)] / links.ranks_per_node; };
  const int num_ranks = int(links.global_ranks.size());
  LinkBytes received;
  const auto receive = [&](int from, double count) {
    if (from == links.rank) return;
    (node_of(from) == node_of(links.rank) ? received.within_node : received.between_nodes) += count;
  };
  if (is_in_parts(operation)) {
    const double part = double(bytes) / num_ranks * (operation == "all_reduce" ? 2 : 1);
    if (links.by_nodes) return received_by_nodes(links, part);
    for (int from = 0; from < num_ranks; ++from) receive(from, part);
  } else if (links.peer >= 0 && operation != "send") {
    receive(links.peer, double(bytes));
  }
  return received;
}

}  // namespace deepspeed::comm
