// Checks that the support for tests with ranks can fail.
#include "tests/support/run_ranks.h"

#include <stdexcept>
#include <thread>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace deepspeed::testing {
namespace {

using comm::World;

TEST(RunRanks, ReturnsTheValuesInRankOrder) {
  const auto values =
      run_ranks_collect(3, [](World& world) { return std::string(1 << (17 + world.rank()), 'x'); });
  ASSERT_EQ(values.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(values[rank].size(), 1u << (17 + rank));
}

TEST(RunRanks, CollectsAFailedAssertionOfARank) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    EXPECT_NE(rank, 1) << "the reason";
    return std::string();
  });
  EXPECT_TRUE(outcomes[0].ok());
  ASSERT_EQ(outcomes[1].failures.size(), 1u);
  EXPECT_NE(outcomes[1].failures[0].find("the reason"), std::string::npos) << outcomes[1].failures[0];
}

TEST(RunRanks, ReportsAnExceptionWithItsRank) {
  const auto body = [](World& world) {
    world.group().barrier();
    if (world.rank() == 1) throw std::runtime_error("what went wrong");
  };
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(&results);
    run_ranks(2, body);
  }
  ASSERT_EQ(results.size(), 2);  // rank 0 saw the other leave
  EXPECT_NE(
      std::string(results.GetTestPartResult(1).message()).find("rank 1 of 2: exception: what went wrong"),
      std::string::npos);
}

TEST(RunRanks, ReportsASignalAndAHang) {
  EXPECT_NONFATAL_FAILURE(run_ranks(1, [](World&) { ::raise(SIGKILL); }),
                          "rank 0 of 1 was ended by signal 9");
  EXPECT_NONFATAL_FAILURE(run_ranks(1, [](World&) { std::this_thread::sleep_for(std::chrono::seconds(30)); },
                                    {.hang_limit = std::chrono::milliseconds(300)}),
                          "rank 0 of 1 hung and was killed");
}

}  // namespace
}  // namespace deepspeed::testing
