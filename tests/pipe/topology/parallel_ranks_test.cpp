#include "deepspeed/pipe/topology/parallel_ranks.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::ElementsAre;

TEST(ParallelRanks, KnowTheirPlaceOnThreeAxes) {
  const ParallelRanks ranks(PipeModelDataParallelTopology(2, 2, 2), 6);  // pipe 1, data 1, model 0
  EXPECT_EQ(ranks.stage_id(), 1);
  EXPECT_EQ(ranks.data_parallel_id(), 1);
  EXPECT_EQ(ranks.slice_parallel_rank(), 0);
  EXPECT_TRUE(ranks.is_last_stage());
  EXPECT_FALSE(ranks.is_first_stage());
  EXPECT_THAT(ranks.pipe_group(), ElementsAre(2, 6));
  EXPECT_THAT(ranks.data_parallel_group(), ElementsAre(4, 6));
  EXPECT_THAT(ranks.slice_group(), ElementsAre(6, 7));
  EXPECT_THAT(ranks.model_parallel_group(), ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(ranks.model_parallel_rank(), 2);
  EXPECT_EQ(ranks.model_parallel_size(), 4);
}

TEST(ParallelRanks, AreTheirOwnSlicesWithoutAModelAxis) {
  const ParallelRanks ranks(PipeDataParallelTopology(3, 2), 3);
  EXPECT_EQ(ranks.slice_parallel_size(), 1);
  EXPECT_EQ(ranks.slice_parallel_rank(), 0);
  EXPECT_THAT(ranks.slice_group(), ElementsAre(3));
  EXPECT_EQ(ranks.slice_groups().size(), 6u);
  EXPECT_THAT(ranks.model_parallel_groups(), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
}

TEST(ParallelRanks, FormOnePipelineWithoutADataAxis) {
  const ParallelRanks ranks(ProcessTopology({"pipe", "model"}, {2, 2}), 3);
  EXPECT_EQ(ranks.data_parallel_size(), 1);
  EXPECT_THAT(ranks.data_parallel_group(), ElementsAre(3));
  EXPECT_THAT(ranks.model_parallel_group(), ElementsAre(0, 1, 2, 3));
}

TEST(ParallelRanks, PairsJoinEachStageWithTheNextAndTheLastWithTheFirst) {
  const ParallelRanks ranks(PipeDataParallelTopology(3, 2), 0);
  EXPECT_THAT(ranks.p2p_groups(), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(2, 4),
                                              ElementsAre(3, 5), ElementsAre(4, 0), ElementsAre(5, 1)));
}

TEST(ParallelRanks, FindTheRankOfAnotherStageAtTheirOwnPlace) {
  const ParallelRanks ranks(PipeModelDataParallelTopology(2, 2, 2), 3);  // pipe 0, data 1, model 1
  EXPECT_EQ(ranks.stage_to_global(0), 3);
  EXPECT_EQ(ranks.stage_to_global(1), 7);
  EXPECT_EQ(ranks.stage_to_global(1, {{"data", 0}}), 5);
  EXPECT_EQ(ranks.stage_to_global(1, {{"data", 0}, {"model", 0}}), 4);
  EXPECT_ERROR(UsageError, ranks.stage_to_global(2), "'pipe' is 2", "0 to 1");
  EXPECT_ERROR(UsageError, ranks.stage_to_global(0, {{"expert", 0}}), "no axis 'expert'");
  EXPECT_ERROR(UsageError, ParallelRanks(PipeDataParallelTopology(2, 2), 4), "rank is 4", "0 to 3");
}

TEST(ParallelRanks, EachKindOfGroupHoldsEachRankOnce) {
  const ParallelRanks ranks(PipeModelDataParallelTopology(3, 2, 4), 0);
  for (const auto& groups : {ranks.pipe_groups(), ranks.data_parallel_groups(), ranks.slice_groups(),
                             ranks.model_parallel_groups()}) {
    std::vector<int> seen;
    for (const auto& group : groups) seen.insert(seen.end(), group.begin(), group.end());
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), 24u);
    for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(seen[rank], rank);
  }
}

TEST(DefaultTopology, GivesPrimeFactorsToStagesAndReplicasInTurn) {
  const auto sizes = [](int world_size) {
    const auto topology = default_topology(world_size);
    return std::vector<int>{topology.get_dim("pipe"), topology.get_dim("data")};
  };
  EXPECT_THAT(sizes(1), ElementsAre(1, 1));
  EXPECT_THAT(sizes(7), ElementsAre(7, 1));
  EXPECT_THAT(sizes(8), ElementsAre(4, 2));
  EXPECT_THAT(sizes(12), ElementsAre(6, 2));
  EXPECT_THAT(sizes(30), ElementsAre(10, 3));
  EXPECT_ERROR(UsageError, default_topology(0), "world size is 0");
}

}  // namespace
}  // namespace deepspeed
