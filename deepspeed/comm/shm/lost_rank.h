// Defines the error of a rank whose peer has ended.
#pragma once

#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed::comm::shm {

/// Reports that a rank's process has ended. Holds the rank in the job, and the process id.
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
