// Two ranks that part ways, and the errors that they end with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

/// Returns the texts of the errors of a class with which two ranks end, before any timeout; "no error" for a
/// rank that ends well. `prepare` gives each rank what it runs then.
template <class ErrorType = CommError>
std::vector<std::string> errors_of_two_ranks(
    const std::function<std::function<void()>(comm::World&)>& prepare) {
  const auto program = [&](int) {
    comm::destroy_process_group();  // the world of one that other tests of this process made
    auto world = join_world();
    return error_of<ErrorType>(prepare(world));
  };
  const auto outcomes = fork_ranks(2, program, {.end_together = true});
  std::vector<std::string> texts;
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    texts.push_back(outcome.value);
  }
  return texts;
}

}  // namespace deepspeed::testing
