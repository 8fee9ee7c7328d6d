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

/// The same ranks as `world`, whose collectives it uses.
comm::World counted_world(const comm::World& world, std::shared_ptr<CallNotes> notes);

/// Those of one collective whose subject begins so, or all.
int64_t count_calls(const CallNotes& notes, const std::string& collective, const std::string& subject = "");

}  // namespace deepspeed::testing
