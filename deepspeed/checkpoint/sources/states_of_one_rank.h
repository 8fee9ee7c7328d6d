// DeepSpeed's 1-bit optimizers save states of a single rank among the elementwise states.
#pragma once

#include <string>

namespace deepspeed::checkpoint {

/// Returns whether a state of that name belongs to a single rank. Such states are ignored when loading.
inline bool is_of_one_rank(const std::string& state) {
  return state == "worker_error" || state == "server_error" || state == "momentum_accumulator";
}

}  // namespace deepspeed::checkpoint
