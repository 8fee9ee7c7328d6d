#include "deepspeed/pipe/module/partition_layers.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/places/places.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::ElementsAre;

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) numbers.push_back(std::stod(word));
  return numbers;
}

TEST(PartitionUniform, GivesTheRemainderToTheFirstParts) {
  EXPECT_THAT(partition_uniform(8, 4), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(partition_uniform(10, 4), ElementsAre(0, 3, 6, 8, 10));
  EXPECT_THAT(partition_uniform(7, 1), ElementsAre(0, 7));
}

TEST(PartitionUniform, LeavesTheLastPartsEmptyWithTooFewItems) {
  EXPECT_THAT(partition_uniform(2, 4), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(partition_uniform(0, 2), ElementsAre(0, 0, 0));
}

TEST(PartitionBalanced, CutsWhereDeepSpeedCuts) {
  std::ifstream golden(deepspeed::testing::source_folder() / "tests/golden/partitions.txt");
  int num_parts, lines = 0;
  std::string weights, boundaries;
  while (golden >> num_parts >> weights >> boundaries) {
    const auto expected = numbers_of(boundaries);
    const auto parts = partition_balanced(numbers_of(weights), num_parts);
    EXPECT_EQ(std::vector<double>(parts.begin(), parts.end()), expected) << num_parts << " " << weights;
    ++lines;
  }
  EXPECT_EQ(lines, 152);
}

TEST(PartitionBalanced, TakesTheLaterOfEqualCuts) {
  EXPECT_THAT(partition_balanced({1, 1, 1}, 2), ElementsAre(0, 2, 3));
  EXPECT_THAT(partition_balanced({0, 1, 0, 1, 0}, 2), ElementsAre(0, 3, 5));
}

TEST(PartitionBalanced, RefusesWeightsThatCannotBeAdded) {
  EXPECT_ERROR(UsageError, partition_balanced({1, -1, 1}, 2), "weight 1 is -1", "at least 0");
  EXPECT_ERROR(UsageError, partition_balanced({1, 1, NAN}, 2), "weight 2 is nan");
  EXPECT_ERROR(UsageError, partition_balanced({1, 1}, 0), "num_parts is 0");
  EXPECT_ERROR(UsageError, partition_uniform(-1, 1), "num_items is -1");
}

std::vector<LayerCost> layers() {
  return {{"Embedding", 100, 0.1}, {"Block", 40, 2}, {"Block", 40, 2}, {"Block", 40, 2},
          {"Block", 40, 2},        {"Norm", 2, 0.1}, {"Head", 100, 4}};
}

TEST(PartitionLayers, UniformCountsLayers) {
  EXPECT_THAT(partition_layers(layers(), 3, "uniform"), ElementsAre(0, 3, 5, 7));
}

TEST(PartitionLayers, ParametersBalancesTrainedElements) {
  EXPECT_THAT(partition_layers(layers(), 2, "Parameters"), ElementsAre(0, 3, 7));
}

TEST(PartitionLayers, TypeBalancesTheLayersThatMatchInAnyCase) {
  EXPECT_THAT(partition_layers(layers(), 2, "type:block"), ElementsAre(0, 3, 7));
  EXPECT_THAT(partition_layers(layers(), 2, "type:^(block|head)$"), ElementsAre(0, 4, 7));
}

TEST(PartitionLayers, ProfileBalancesMeasuredTimes) {
  EXPECT_THAT(partition_layers(layers(), 2, "profile"), ElementsAre(0, 4, 7));
}

TEST(PartitionLayers, ErrorsNameTheMethodAndTheWayOut) {
  EXPECT_ERROR(UsageError, partition_layers(layers(), 8, "uniform"), "partition_method 'uniform'", "7 layers",
               "8 stages", "fewer stages");
  EXPECT_ERROR(UsageError, partition_layers(layers(), 2, "type:linear"), "partition_method 'type:linear'",
               "matches no layer", "'Embedding', 'Block', 'Norm', 'Head'");
  EXPECT_ERROR(UsageError, partition_layers(layers(), 2, "type:("), "partition_method 'type:('",
               "broken regular expression");
  EXPECT_ERROR(UsageError, partition_layers(layers(), 2, "best"), "partition_method is 'best'",
               "'type:REGEX' or 'profile'");
  EXPECT_ERROR(UsageError, partition_layers({{"Block", 1, 0}, {"Block", 1, 0}}, 2, "profile"),
               "partition_method 'profile'", "no times", "'parameters'");
}

}  // namespace
}  // namespace deepspeed
