// The world of ranks that fork_ranks() has started.
#pragma once

#include <chrono>

#include "deepspeed/comm/init.h"

#include "tests/support/test_device.h"

namespace deepspeed::testing {

/// Joins it over the backend of the tests, in the body of a rank. timeout: InitOptions::timeout; that of the
/// default is longer than the ranks may live, so that no error of the test comes of it.
inline comm::World join_world(std::chrono::milliseconds timeout = std::chrono::minutes(10)) {
  return comm::init_distributed({.dist_backend = test_backend(), .verbose = false, .timeout = timeout});
}

}  // namespace deepspeed::testing
