// DeepSpeed's 1-bit optimizers save states of one rank among those of the elements.
#pragma once

#include <string>

namespace deepspeed::checkpoint {

/// Says whether a state is of one rank: such states are forgotten where they are loaded.
inline bool is_of_one_rank(const std::string& state) {
  return state == "worker_error" || state == "server_error" || state == "momentum_accumulator";
}

}  // namespace deepspeed::checkpoint
