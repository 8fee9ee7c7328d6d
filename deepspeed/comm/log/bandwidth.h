// What a collective's size and time say of the links between ranks. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

/// Gigabits a second: of the program's data, and of the links, which carry another multiple of it.
struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};

/// Returns DeepSpeed's figures for an operation, as ObservedCall names it, over tensors of `bytes` in all.
/// all_reduce counts its data twice, as it is reduced and sent back; the links of `num_ranks` ranks carry
/// (n - 1) / n of what all_gather, reduce_scatter, reduce_to_owners, all_to_all and all_reduce count.
DEEPSPEED_API Bandwidth bandwidth_of(std::string_view operation, int64_t bytes, double milliseconds,
                                     int num_ranks);

/// Bytes that one rank receives of the others.
struct LinkBytes {
  double within_node = 0;
  double between_nodes = 0;

  LinkBytes& operator+=(const LinkBytes& other) {
    within_node += other.within_node;
    between_nodes += other.between_nodes;
    return *this;
  }
};

/// Where a collective's ranks are.
struct Links {
  std::vector<int> global_ranks;
  int rank = 0;            // the index of this one among them
  int peer = -1;           // the root of a broadcast, the other end of a message: an index among them
  int ranks_per_node = 1;  // consecutive global ranks
  bool by_nodes = false;   // parts go within nodes and once between them (comm/backends/nodes)
};

/// Returns what an operation has this rank receive where every rank sends each part straight to those that
/// need it: an all_gather each other rank's part, a reduce_scatter a part of this rank's own size from each
/// other rank, an all_reduce both. By N nodes, each other node sends one such part, and each other rank of
/// the own node N.
DEEPSPEED_API LinkBytes received_bytes(std::string_view operation, int64_t bytes, const Links& links);

}  // namespace deepspeed::comm
