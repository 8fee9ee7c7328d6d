// Computes what a collective's size and time tell about the links between ranks. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

/// Holds bandwidths in gigabits per second. `algorithm` counts the program's data, `bus` the bytes on the
/// links, which are a multiple of the data.
struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};

/// Returns DeepSpeed's bandwidths for an operation over tensors of `bytes` in total. Operations have
/// ObservedCall's names. all_reduce counts its data twice, because it is reduced and sent back. For
/// all_gather, reduce_scatter, reduce_to_owners, all_to_all and all_reduce, the links of n ranks carry (n -
/// 1) / n of the counted data.
DEEPSPEED_API Bandwidth bandwidth_of(std::string_view operation, int64_t bytes, double milliseconds,
                                     int num_ranks);

/// Counts the bytes that one rank receives from the others.
struct LinkBytes {
  double within_node = 0;
  double between_nodes = 0;

  LinkBytes& operator+=(const LinkBytes& other) {
    within_node += other.within_node;
    between_nodes += other.between_nodes;
    return *this;
  }
};

/// Tells which ranks take part in a collective, and which of them share a node.
struct Links {
  std::vector<int> global_ranks;
  int rank = 0;            // index of this rank among them
  int peer = -1;           // root of a broadcast or other end of a message, as an index among them
  int ranks_per_node = 1;  // consecutive global ranks
  bool by_nodes = false;   // in steps within nodes and between them (comm/backends/nodes)
};

/// Returns the bytes that this rank receives. Unless `by_nodes` is set, every rank sends data directly to the
/// ranks that need it. A part has 1 / n of `bytes` for n ranks. In an all_gather or reduce_scatter, this rank
/// receives one part from each other rank; in an all_reduce, two parts. With `by_nodes` and N nodes, it
/// receives one part from each other node, and N parts from each other rank of its own node (an all_reduce:
/// twice that).
DEEPSPEED_API LinkBytes received_bytes(std::string_view operation, int64_t bytes, const Links& links);

}  // namespace deepspeed::comm
