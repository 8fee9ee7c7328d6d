// An engine whose world was left trains no further, on one rank or several.
#include <gtest/gtest.h>

#include "deepspeed/comm/init.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

void expect_ok(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures.front());
}

TEST(LeftWorld, EndsItsEngines) {
  const auto make = [] {
    comm::destroy_process_group();  // what other tests of this process made
    auto engine = make_engine(basic(), comm::init_distributed());
    train_step(*engine);
    comm::destroy_process_group();
    return engine;
  };
  expect_ok(fork_ranks(1, [&](int) {
    const auto engine = make();
    EXPECT_ERROR(UsageError, train_step(*engine), "backward() of an engine whose world was left",
                 "by destroy_process_group()", "make another engine after init_distributed()");
    return std::string();
  }));
  const auto train_on = [&](int) {
    const auto engine = make();
    EXPECT_ERROR(CommError, train_step(*engine),
                 "left the world that it had joined, by destroy_process_group()");
    return std::string();
  };
  expect_ok(fork_ranks(2, train_on, {.end_together = true}));
}

}  // namespace
}  // namespace deepspeed::testing
