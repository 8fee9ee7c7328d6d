// Two ranks that part ways, and the errors that they end with.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

/// Returns the texts of the errors of a class with which two ranks end, within seconds; "no error" for a rank
/// that ends well. `prepare` gives each rank what it runs then.
template <class ErrorType = CommError>
std::vector<std::string> errors_of_two_ranks(
    const std::function<std::function<void()>(comm::World&)>& prepare) {
  const auto begin = std::chrono::steady_clock::now();
  const auto program = [&](int) {
    comm::destroy_process_group();  // the world of one that other tests of this process made
    auto world = comm::init_distributed(
        {.dist_backend = "gloo", .verbose = false, .timeout = std::chrono::seconds(120)});
    return error_of<ErrorType>(prepare(world));
  };
  const auto outcomes = fork_ranks(2, program, {.end_together = true});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  std::vector<std::string> texts;
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    texts.push_back(outcome.value);
  }
  return texts;
}

}  // namespace deepspeed::testing
