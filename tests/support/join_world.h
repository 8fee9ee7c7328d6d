// The world of ranks that fork_ranks() has started.
#pragma once

#include <chrono>

#include "deepspeed/comm/init.h"

namespace deepspeed::testing {

/// Joins it over Gloo, in the body of a rank. timeout: InitOptions::timeout; where no error of the test is a
/// timeout, it is long.
inline comm::World join_world(std::chrono::milliseconds timeout = std::chrono::seconds(120)) {
  return comm::init_distributed({.dist_backend = "gloo", .verbose = false, .timeout = timeout});
}

}  // namespace deepspeed::testing
