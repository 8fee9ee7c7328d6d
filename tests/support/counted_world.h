// A world that notes the collectives that its group starts, for tests of what travels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"

namespace deepspeed::testing {

struct NotedCall {
  std::string collective;  // "all_gather"
  int64_t bytes = 0;       // of the whole result
  int num_ranks = 0;       // of its group
  std::string subject;     // comm::CallSubject: "parameter 'head.weight'"
};
using CallNotes = std::vector<NotedCall>;

/// Returns a world of `world`'s ranks that uses its collectives and notes them.
comm::World counted_world(const comm::World& world, std::shared_ptr<CallNotes> notes);

/// Counts the calls of a collective whose subject begins with `subject`, or all of them.
int64_t count_calls(const CallNotes& notes, const std::string& collective, const std::string& subject = "");

}  // namespace deepspeed::testing
