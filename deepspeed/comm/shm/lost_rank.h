// The error of a rank whose peer cannot go on.
#pragma once

#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::comm::shm {

/// Says which rank of the job ended, and as which process, so that nobody has to search for it.
class LostRank : public CommError {
 public:
  LostRank(const std::string& text, int rank, int process)
      : CommError(text), rank_(rank), process_(process) {}
  int rank() const { return rank_; }
  int process() const { return process_; }

 private:
  int rank_, process_;
};

}  // namespace deepspeed::comm::shm
