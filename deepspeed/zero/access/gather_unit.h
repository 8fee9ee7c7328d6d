// Parameters that are gathered as one: the leaf modules of stage 3. Which of them an operator uses differs
// from rank to rank (a block of experts). All ranks use the unit itself, at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace deepspeed::zero {

struct Gatherable;

struct GatherUnit {
  std::string name;  // "leaf module 'h.0.experts'"
  size_t index = 0;  // counts the units of a pool, from 1 on
  uint64_t key = 0;  // in traces
  int64_t numel = 0;
  std::vector<Gatherable*> members;             // those that live, in the same order on all ranks
  std::unordered_set<Gatherable*> live_copies;  // copies of members that are whole or on their way
};

}  // namespace deepspeed::zero
