// Parameters that are gathered as one: the leaf modules of stage 3. Operators may use different ones on each
// rank (a block of experts). All ranks use the unit itself, at the same time.
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
  size_t index = 0;  // numbers the units of a pool, from 1 on
  uint64_t key = 0;  // in traces
  int64_t numel = 0;
  std::vector<Gatherable*> members;             // existing members, in the same order on all ranks
  std::unordered_set<Gatherable*> live_copies;  // copies of members that are whole or being gathered
};

}  // namespace deepspeed::zero
