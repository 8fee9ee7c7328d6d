// Grids are compared with products of lists that are written out.
#include "deepspeed/trial/experiment/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

Space grid_space(const std::string& hyperparameters) {
  return testing::experiment_of("searcher: {name: grid, metric: loss, max_length: 1}\nhyperparameters: {" +
                                hyperparameters + "}\n")
      .hyperparameters;
}

std::vector<Json> points(const Space& space) {
  std::vector<Json> found;
  for (int64_t point = 0; point < grid_size(space, kMaxTrials); ++point)
    found.push_back(grid_point(space, point));
  return found;
}

std::vector<Json> points_of_one(const std::string& domain) {
  std::vector<Json> found;
  for (const Json& point : points(grid_space("a: " + domain))) found.push_back(point["a"]);
  return found;
}

TEST(Grid, IsTheProductWithTheLastNameFastest) {
  // This is the example of Determined's page on its grid method.
  const Space space = grid_space(
      "cparam: c, bparam: {type: categorical, vals: [10, 20]}, "
      "aparam: {type: int, minval: 0, maxval: 2, count: 100}");
  std::vector<Json> expected;
  for (const int a : {0, 1, 2}) {
    for (const int b : {10, 20}) expected.push_back({{"aparam", a}, {"bparam", b}, {"cparam", "c"}});
  }
  EXPECT_EQ(points(space), expected);
}

TEST(Grid, SpacesRangesEvenly) {
  EXPECT_EQ(points_of_one("{type: double, minval: 0, maxval: 1, count: 5}"),
            (std::vector<Json>{0.0, 0.25, 0.5, 0.75, 1.0}));
  EXPECT_EQ(points_of_one("{type: double, minval: 1, maxval: 4, count: 1}"), (std::vector<Json>{2.5}));
  EXPECT_EQ(points_of_one("{type: log, base: 2, minval: -2, maxval: 2, count: 3}"),
            (std::vector<Json>{0.25, 1.0, 4.0}));
  EXPECT_EQ(points_of_one("{type: log, base: 10, minval: 0, maxval: 4, count: 1}"),
            (std::vector<Json>{100.0}));
  EXPECT_EQ(points_of_one("{type: int, minval: -3, maxval: 4, count: 3}"), (std::vector<Json>{-3, 1, 4}));
  EXPECT_EQ(points_of_one("{type: int, minval: 1, maxval: 4, count: 1}"), (std::vector<Json>{3}));
}

TEST(Grid, ReachesIntoNestedSpaces) {
  const Space space = grid_space(
      "a: {x: {type: categorical, vals: [1, [2]]}, e: {}, z: {type: categorical, vals: "
      "[p, q]}}, b: {type: categorical, vals: [true, null]}");
  ASSERT_EQ(grid_size(space, kMaxTrials), 8);
  EXPECT_EQ(grid_point(space, 0), Json::parse(R"({"a": {"e": {}, "x": 1, "z": "p"}, "b": true})"));
  EXPECT_EQ(grid_point(space, 1), Json::parse(R"({"a": {"e": {}, "x": 1, "z": "p"}, "b": null})"));
  EXPECT_EQ(grid_point(space, 2), Json::parse(R"({"a": {"e": {}, "x": 1, "z": "q"}, "b": true})"));
  EXPECT_EQ(grid_point(space, 7), Json::parse(R"({"a": {"e": {}, "x": [2], "z": "q"}, "b": null})"));
}

TEST(Grid, HasOnePointWithoutRanges) {
  EXPECT_EQ(points(grid_space("")), (std::vector<Json>{Json::object()}));
  EXPECT_EQ(points(grid_space("a: 1")), (std::vector<Json>{Json{{"a", 1}}}));
}

TEST(Grid, CountsNoFurtherThanAsked) {
  const std::string axis = "{type: double, minval: 0, maxval: 1, count: 50000}";
  const Space space = grid_space("a: " + axis);
  EXPECT_EQ(grid_size(space, 49999), 50000);
  EXPECT_EQ(grid_size(space, 50000), 50000);
}

}  // namespace
}  // namespace deepspeed::trial
