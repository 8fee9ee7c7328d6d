#include "deepspeed/trial/search/sample.h"

#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

Space space_of(const std::string& hyperparameters) {
  return testing::experiment_of("searcher: {name: single, metric: loss, max_length: 1}\nhyperparameters: {" +
                                hyperparameters + "}\n")
      .hyperparameters;
}

constexpr int kDraws = 4000;

TEST(Sample, StaysInsideItsDomainAndFillsItEvenly) {
  const Space space = space_of(
      "i: {type: int, minval: -2, maxval: 3}, d: {type: double, minval: 1, maxval: 3}, "
      "l: {type: log, base: 10, minval: -4, maxval: 0}, c: {type: categorical, vals: [a, b, [1]]}, k: 5");
  std::map<int64_t, int> ints, tenths, decades;
  std::map<std::string, int> choices;
  for (int64_t trial = 0; trial < kDraws; ++trial) {
    const Json values = sample_hyperparameters(space, 17, trial);
    ++ints[values["i"].get<int64_t>()];
    const double real = values["d"].get<double>(), power = values["l"].get<double>();
    ASSERT_TRUE(real >= 1 && real <= 3 && power >= 1e-4 && power <= 1) << values;
    ++tenths[static_cast<int64_t>((real - 1) * 5)];
    ++decades[static_cast<int64_t>(std::floor(std::log10(power)))];
    ++choices[values["c"].dump()];
    ASSERT_EQ(values["k"], 5);
  }
  // Five standard deviations of a binomial count, about.
  const auto is_even = [](const auto& counts, size_t size) {
    const double mean = double(kDraws) / double(size);
    for (const auto& [value, count] : counts) {
      if (std::abs(count - mean) > 5 * std::sqrt(mean)) return false;
    }
    return counts.size() == size;
  };
  EXPECT_TRUE(is_even(ints, 6));
  EXPECT_EQ(ints.begin()->first, -2);
  EXPECT_TRUE(is_even(tenths, 10));
  EXPECT_TRUE(is_even(decades, 4));
  EXPECT_TRUE(is_even(choices, 3));
}

TEST(Sample, DependsOnSeedAndTrialAlone) {
  const Space space = space_of("x: {type: double, minval: 0, maxval: 1}");
  std::set<double> drawn;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t trial = 0; trial < 50; ++trial) {
      const Json first = sample_hyperparameters(space, seed, trial);
      EXPECT_EQ(first, sample_hyperparameters(space, seed, trial));
      drawn.insert(first["x"].get<double>());
    }
  }
  EXPECT_EQ(drawn.size(), 1000u);
  // The value is that of another program by the same formulas: a search must find again what it drew before.
  EXPECT_EQ(sample_hyperparameters(space, 7, 3)["x"].get<double>(), 0.2848180721944208);
}

TEST(Sample, LeavesOtherHyperparametersWhenOneIsAdded) {
  const std::string x = "{type: double, minval: 0, maxval: 1}";
  const Json alone = sample_hyperparameters(space_of("x: " + x), 1, 2);
  const Json more = sample_hyperparameters(space_of("a: " + x + ", x: " + x + ", b: {x: " + x + "}"), 1, 2);
  EXPECT_EQ(alone["x"], more["x"]);
  EXPECT_NE(more["a"], more["x"]);
  EXPECT_NE(more["b"]["x"], more["x"]);
}

TEST(Sample, TakesTheLargestRangeOfWholeNumbers) {
  const Space space = space_of("i: {type: int, minval: -9007199254740992, maxval: 9007199254740992}");
  std::set<int64_t> drawn;
  for (int64_t trial = 0; trial < 100; ++trial)
    drawn.insert(sample_hyperparameters(space, 1, trial)["i"].get<int64_t>());
  EXPECT_EQ(drawn.size(), 100u);
  EXPECT_LT(*drawn.begin(), 0);
  EXPECT_GT(*drawn.rbegin(), 0);
}

}  // namespace
}  // namespace deepspeed::trial
