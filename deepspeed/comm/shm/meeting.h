// The ranks of a group find out together whether they share memory, and exchange it. Each learns the same
// answer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/comm/shm/arena.h"
#include "deepspeed/comm/shm/member.h"

namespace deepspeed::comm::shm {

/// Is where ranks read what others wrote, e.g. a store of c10d. get() waits, and throws after a time.
struct Board {
  std::function<void(const std::string& key, const std::string& text)> set;
  std::function<std::string(const std::string& key)> get;
};

struct MeetingPlan {
  int rank = 0;
  std::vector<int> names;                  // of the ranks, for texts
  std::string machine;                     // alike on ranks that may share memory
  std::string refusal;                     // not empty: why this rank takes no part
  std::shared_ptr<Arena> arena;            // null: none
  std::chrono::milliseconds limit{30000};  // of connecting, once all ranks came
};

/// Says what came of a meeting.
struct MeetingResult {
  std::unique_ptr<Member> member;  // null: the ranks do not share memory
  bool is_one_machine = true;
  std::string reason;  // why not, alike on all ranks
};

/// Meets the other ranks. Collective. Throws what the board throws; nothing else fails but by the result.
MeetingResult meet(const Board& board, MeetingPlan plan);

}  // namespace deepspeed::comm::shm
