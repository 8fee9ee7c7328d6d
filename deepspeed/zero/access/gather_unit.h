// Parameters that are gathered as one: the leaf modules of stage 3. Which of them an operator uses differs
// from rank to rank (a block of experts); that the unit is used, and when, does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace deepspeed::zero {

class PartitionedStorage;

struct GatherUnit {
  std::string name;  // "leaf module 'h.0.experts'"
  size_t index = 0;  // counts the units of a pool
  uint64_t key = 0;  // in traces
  int64_t numel = 0;
  std::vector<PartitionedStorage*> members;             // those that live, in the same order on all ranks
  std::unordered_set<PartitionedStorage*> live_copies;  // copies of members, whole or on their way
};

}  // namespace deepspeed::zero
