// Lets the ranks of a group find out whether they can share memory. If so, they exchange access to it. All
// ranks get the same answer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/comm/shm/arena.h"
#include "deepspeed/comm/shm/member.h"

namespace deepspeed::comm::shm {

/// Wraps a key-value store that all ranks read and write, e.g. a c10d store. get() waits for a key and throws
/// after a timeout.
struct Board {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;
};

struct MeetingPlan {
  int rank = 0;
  std::vector<int> names;                  // the ranks' numbers in error texts
  std::string machine;                     // equal on ranks that can share memory
  std::string refusal;                     // why this rank takes no part, or empty
  std::shared_ptr<Arena> arena;            // may be null
  std::chrono::milliseconds limit{30000};  // for connecting, once all ranks have written
};

/// Holds the outcome of a meeting.
struct MeetingResult {
  std::unique_ptr<Member> member;  // null if the ranks do not share memory
  bool is_one_machine = true;
  std::string reason;  // why there is no member; equal on all ranks that take part
};

/// Exchanges access to memory with the other ranks. Collective. Throws what the board throws; any other
/// failure is in the result.
MeetingResult meet(const Board& board, MeetingPlan plan);

}  // namespace deepspeed::comm::shm
