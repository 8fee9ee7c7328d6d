// Ranks that join their world once and then do one piece of work after another, where a test compares many
// runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deepspeed/comm/init.h"

namespace deepspeed::testing {

class StandingRanks {
 public:
  /// Answers an order on a rank, as the body of run_ranks_collect() would.
  using Work = std::function<std::string(comm::World&, const std::string& order)>;

  /// Forks the ranks, which join their world at the first order.
  StandingRanks(int world_size, const Work& work);
  /// Ends them.
  ~StandingRanks();
  StandingRanks(const StandingRanks&) = delete;
  StandingRanks& operator=(const StandingRanks&) = delete;

  /// Gives all ranks an order and returns their answers, in rank order. A failed assertion, an exception or
  /// the end of a rank fails the calling test; the ranks are then of no more use.
  std::vector<std::string> answers_to(const std::string& order);
  bool is_usable() const { return is_usable_; }

 private:
  struct Rank {
    pid_t process = -1;
    int socket = -1;
  };

  std::vector<Rank> ranks_;
  bool is_usable_ = true;
};

}  // namespace deepspeed::testing
