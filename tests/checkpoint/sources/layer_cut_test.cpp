// The sizes of an optimizer's states tell which layers a saved stage had.
#include "deepspeed/checkpoint/sources/layer_cut.h"

#include <string>

#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Shape = std::vector<int64_t>;

LayerParameters layer(const std::string& prefix, const std::vector<Shape>& shapes, bool is_tied = false) {
  LayerParameters result{{}, is_tied};
  for (const Shape& shape : shapes)
    result.params.emplace_back(prefix + "." + std::to_string(result.params.size()), shape);
  return result;
}

StageSizes with_shapes(const std::vector<Shape>& shapes) {
  return {std::nullopt, {shapes.begin(), shapes.end()}};
}

StageSizes flat(int64_t numel) { return {numel, {}}; }

std::vector<std::string> names(const NamedShapes& params) {
  std::vector<std::string> result;
  for (const auto& [name, sizes] : params) result.push_back(name);
  return result;
}

TEST(LayerCut, FollowsFromShapes) {
  const std::vector<LayerParameters> layers = {layer("0", {{4}}), layer("1", {{4}}), layer("2", {{2, 2}}),
                                               layer("3", {{4}, {4}})};
  const auto cuts = find_cuts(layers, {with_shapes({{4}}), with_shapes({{4}, {2, 2}, {4}, {4}})});
  ASSERT_THAT(cuts, SizeIs(1));
  EXPECT_THAT(names(cuts[0][0]), ElementsAre("0.0"));
  EXPECT_THAT(names(cuts[0][1]), ElementsAre("1.0", "2.0", "3.0", "3.1"));
}

TEST(LayerCut, FollowsFromTheNumberOfParametersWhereShapesAreAlike) {
  std::vector<LayerParameters> layers;
  for (const char* prefix : {"0", "1", "2", "3", "4"}) layers.push_back(layer(prefix, {{3}}));
  const auto cuts = find_cuts(layers, {with_shapes({{3}}), with_shapes({{3}, {3}, {3}}), with_shapes({{3}})});
  ASSERT_THAT(cuts, SizeIs(1));
  EXPECT_THAT(names(cuts[0][1]), ElementsAre("1.0", "2.0", "3.0"));
}

TEST(LayerCut, FollowsFromTheElementsOfAllParametersWhereTheyAreFlat) {
  const std::vector<LayerParameters> layers = {layer("0", {{4}}), layer("1", {{3}, {2}}), layer("2", {{9}})};
  const auto cuts = find_cuts(layers, {flat(9), flat(9)});
  ASSERT_THAT(cuts, SizeIs(1));
  EXPECT_THAT(names(cuts[0][0]), ElementsAre("0.0", "1.0", "1.1"));
  EXPECT_THAT(names(cuts[0][1]), ElementsAre("2.0"));
}

TEST(LayerCut, HasTiedLayersFirstAndOnceInEachStage) {
  const std::vector<LayerParameters> layers = {layer("0", {{2}}),       layer("t", {{5}}, true),
                                               layer("1", {{2}}),       layer("2", {{2}}),
                                               layer("t", {{5}}, true), layer("t", {{5}}, true)};
  const auto cuts = find_cuts(layers, {with_shapes({{5}, {2}, {2}}), with_shapes({{5}, {2}})});
  ASSERT_THAT(cuts, SizeIs(1));
  EXPECT_THAT(names(cuts[0][0]), ElementsAre("t.0", "0.0", "1.0"));
  EXPECT_THAT(names(cuts[0][1]), ElementsAre("t.0", "2.0"));
}

TEST(LayerCut, IsOneWhereLayersWithoutParametersMayLieOnBothSides) {
  const std::vector<LayerParameters> layers = {layer("0", {{2}}), layer("1", {}), layer("2", {}),
                                               layer("3", {{3}}), layer("4", {}), layer("5", {{3}})};
  EXPECT_THAT(find_cuts(layers, {with_shapes({{2}}), with_shapes({{3}}), with_shapes({{3}})}), SizeIs(1));
}

TEST(LayerCut, IsAmbiguousWhereSizesFitSeveralOrders) {
  // The stages meet at layer 2, which both have a copy of, so the second begins with "t" or with "u".
  const std::vector<LayerParameters> layers = {layer("t", {{5}}, true), layer("1", {{2}}),
                                               layer("t", {{5}}, true), layer("u", {{5}}, true),
                                               layer("4", {{2}}),       layer("t", {{5}}, true)};
  const auto cuts = find_cuts(layers, {with_shapes({{5}, {2}}), with_shapes({{5}, {5}, {2}})});
  ASSERT_THAT(cuts, SizeIs(2));
  EXPECT_NE(names(cuts[0][1]), names(cuts[1][1]));
}

TEST(LayerCut, DoesNotExistWhereSizesOrNumbersDiffer) {
  const std::vector<LayerParameters> layers = {layer("0", {{2}}), layer("1", {{3}})};
  EXPECT_THAT(find_cuts(layers, {with_shapes({{2}}), with_shapes({{4}})}), IsEmpty());
  EXPECT_THAT(find_cuts(layers, {with_shapes({{2}, {3}}), with_shapes({{3}})}), IsEmpty());
  EXPECT_THAT(find_cuts(layers, {with_shapes({{2}})}), IsEmpty()) << "a layer is left";
  EXPECT_THAT(find_cuts(layers, {flat(2), flat(4)}), IsEmpty());
}

TEST(LayerCut, HoldsParametersWithoutStatesByTheirPlace) {
  const std::vector<LayerParameters> layers = {layer("0", {{2}, {6}}), layer("1", {{3}})};
  StageSizes first = with_shapes({{2}});
  first.shapes.emplace_back(std::nullopt);
  EXPECT_THAT(find_cuts(layers, {first, with_shapes({{3}})}), SizeIs(1));
}

TEST(StageSizes, AreThoseOfMastersOrStates) {
  PlainGroupStates group;
  group.params.resize(3);
  group.params[0].tensors = {{"worker_error", at::zeros({99})}, {"exp_avg", at::zeros({2, 3})}};
  group.params[1].tensors = {{"scaling", at::zeros({})}};
  EXPECT_EQ(sizes_of(group).shapes, (std::vector<std::optional<Shape>>{Shape{2, 3}, {}, {}}));
  group.fp32 = {at::zeros({2, 3}), at::zeros({4}), at::zeros({})};
  EXPECT_EQ(sizes_of(group).shapes, (std::vector<std::optional<Shape>>{Shape{2, 3}, Shape{4}, Shape{}}));
  group.params.resize(1);
  group.fp32.clear();
  group.fp32_flat = at::zeros({10});
  EXPECT_EQ(sizes_of(group).flat_numel, 10);
}

}  // namespace
}  // namespace deepspeed::checkpoint
