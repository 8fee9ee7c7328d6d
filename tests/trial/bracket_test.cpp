#include "deepspeed/trial/search/bracket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

using ::testing::ElementsAre;

std::vector<Bracket> brackets_for(const std::string& searcher) {
  return brackets_of(testing::search_of(searcher).searcher);
}

// Shares of trials and places are those of Determined's own test, adaptive_asha_test.go.
TEST(Brackets, AreSharedAsDeterminedShares) {
  EXPECT_THAT(brackets_for("name: adaptive_asha, max_length: 100, max_concurrent_trials: 2, max_trials: 10"),
              ElementsAre(Bracket{{25, 100}, 7, 1}, Bracket{{100}, 3, 1}));
  EXPECT_THAT(brackets_for("name: adaptive_asha, mode: conservative, divisor: 3, max_length: 900, "
                           "max_concurrent_trials: 5, max_trials: 10"),
              ElementsAre(Bracket{{100, 300, 900}, 7, 2}, Bracket{{300, 900}, 2, 2}, Bracket{{900}, 1, 1}));
  EXPECT_THAT(brackets_for("name: adaptive_asha, mode: conservative, divisor: 3, max_length: 9, "
                           "max_concurrent_trials: 11, max_trials: 20"),
              ElementsAre(Bracket{{1, 3, 9}, 12, 4}, Bracket{{3, 9}, 5, 4}, Bracket{{9}, 3, 3}));
  EXPECT_THAT(
      brackets_for("name: adaptive_asha, mode: standard, divisor: 4, max_length: 64, max_rungs: 4, "
                   "max_concurrent_trials: 0, max_trials: 100"),
      ElementsAre(Bracket{{1, 4, 16, 64}, 70, 8}, Bracket{{4, 16, 64}, 22, 8}, Bracket{{16, 64}, 8, 8}));
}

TEST(Brackets, DoNotExceedTheTrials) {
  for (int trials = 1; trials < 400; trials += 7) {
    for (const char* mode : {"aggressive", "standard", "conservative", "sync"}) {
      for (const int divisor : {2, 3, 4}) {
        const auto brackets =
            brackets_for("name: adaptive_asha, max_length: 1679616, mode: " + std::string(mode) +
                         ", divisor: " + std::to_string(divisor) + ", max_trials: " + std::to_string(trials));
        int64_t sum = 0;
        for (const Bracket& bracket : brackets) {
          sum += bracket.max_trials;
          EXPECT_EQ(bracket.lengths.back(), 1679616);
        }
        EXPECT_EQ(sum, trials) << mode << " " << divisor;
      }
    }
  }
}

TEST(Brackets, AreOneWithoutEarlyStopping) {
  EXPECT_THAT(brackets_for("name: single, max_length: 5"), ElementsAre(Bracket{{5}, 1, 1}));
  EXPECT_THAT(brackets_for("name: random, max_length: 5, max_trials: 40"), ElementsAre(Bracket{{5}, 40, 16}));
  EXPECT_THAT(brackets_for("name: random, max_length: 5, max_trials: 40, max_concurrent_trials: 0"),
              ElementsAre(Bracket{{5}, 40, 40}));
  EXPECT_THAT(brackets_for("name: grid, max_length: 5"), ElementsAre(Bracket{{5}, 7, 16}));
}

TEST(Brackets, AreOneInTheModesAggressiveAndSync) {
  for (const char* mode : {"aggressive", "sync"}) {
    EXPECT_THAT(
        brackets_for("name: adaptive_asha, max_length: 16, max_trials: 20, mode: " + std::string(mode)),
        ElementsAre(Bracket{{1, 4, 16}, 20, 16}));
  }
}

}  // namespace
}  // namespace deepspeed::trial
