#include "deepspeed/pipe/topology/process_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::ElementsAre;

TEST(ProcessTopology, LaysRanksOutWithTheLastAxisFastest) {
  const ProcessTopology topology({"row", "col"}, {2, 3});
  EXPECT_EQ(topology.world_size(), 6);
  EXPECT_EQ(topology.get_rank({{"row", 0}, {"col", 2}}), 2);
  EXPECT_EQ(topology.get_rank({{"row", 1}, {"col", 0}}), 3);
  EXPECT_EQ(topology.get_coord(5), (ProcessCoord{{"row", 1}, {"col", 2}}));
  EXPECT_THAT(topology.get_axis_names(), ElementsAre("row", "col"));
  EXPECT_THAT(topology.get_axis_list("row", 1), ElementsAre(3, 4, 5));
  EXPECT_THAT(topology.get_axis_list("col", 0), ElementsAre(0, 3));
}

TEST(ProcessTopology, GivesAMissingAxisSizeZeroAndNoGroups) {
  const ProcessTopology topology({"row", "col"}, {2, 3});
  EXPECT_EQ(topology.get_dim("col"), 3);
  EXPECT_EQ(topology.get_dim("depth"), 0);
  EXPECT_TRUE(topology.get_axis_comm_lists("depth").empty());
}

TEST(ProcessTopology, GroupsDifferOnlyOnTheirAxis) {
  const PipeModelDataParallelTopology topology(2, 2, 2);
  EXPECT_THAT(topology.get_axis_names(), ElementsAre("pipe", "data", "model"));
  EXPECT_THAT(topology.get_axis_comm_lists("pipe"),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(topology.get_axis_comm_lists("data"),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  EXPECT_THAT(topology.get_axis_comm_lists("model"),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
}

TEST(ProcessTopology, PresetsHaveDeepSpeedsOrderOfAxes) {
  const PipeModelDataParallelTopology topology(2, 3, 5);
  EXPECT_EQ(topology.get_dim("pipe"), 2);
  EXPECT_EQ(topology.get_dim("model"), 3);
  EXPECT_EQ(topology.get_dim("data"), 5);
  EXPECT_EQ(topology.get_rank({{"pipe", 1}, {"data", 1}, {"model", 2}}), 15 + 3 + 2);
  EXPECT_THAT(PipeDataParallelTopology(2, 4).get_axis_comm_lists("data"),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
}

TEST(ProcessTopology, FiltersRanksByAPartOfTheCoordinates) {
  const PipeModelDataParallelTopology topology(2, 2, 2);
  EXPECT_THAT(topology.filter_match({{"pipe", 0}, {"data", 1}}), ElementsAre(2, 3));
  EXPECT_THAT(topology.filter_match({{"model", 1}}), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(topology.filter_match({}).size(), 8u);
  EXPECT_TRUE(topology.filter_match({{"pipe", 2}}).empty());
}

TEST(ProcessTopology, NamesARankByTheAxesThatAreNotOmitted) {
  const PipeModelDataParallelTopology topology(2, 2, 2);
  EXPECT_EQ(topology.get_rank_repr(7), "model_01");
  EXPECT_EQ(topology.get_rank_repr(7, {"pipe"}), "data_01-model_01");
  EXPECT_EQ(topology.get_rank_repr(2, {}, "=", "/"), "pipe=00/data=01/model=00");
  EXPECT_EQ(PipeDataParallelTopology(2, 2).get_rank_repr(3), "");
  EXPECT_EQ(ProcessTopology({"a"}, {130}).get_rank_repr(123), "a_123");
}

TEST(ProcessTopology, RefusesPlacesAndAxesThatDoNotExist) {
  const ProcessTopology topology({"row", "col"}, {2, 3});
  EXPECT_ERROR(UsageError, ProcessTopology({"row", "col"}, {2}), "2 axes and 1 dims");
  EXPECT_ERROR(UsageError, ProcessTopology({"row"}, {0}), "'row' of size 0");
  EXPECT_ERROR(UsageError, topology.get_rank({{"row", 0}}), "'col' is missing", "filter_match()");
  EXPECT_ERROR(UsageError, topology.get_rank({{"row", 0}, {"col", 3}}), "'col' is 3", "0 to 2");
  EXPECT_ERROR(UsageError, topology.get_rank({{"row", 0}, {"col", 0}, {"data", 0}}), "no axis 'data'");
  EXPECT_ERROR(UsageError, topology.get_coord(6), "rank is 6", "0 to 5");
  EXPECT_ERROR(UsageError, topology.filter_match({{"data", 0}}), "no axis 'data'");
  EXPECT_ERROR(UsageError, topology.get_axis_list("data", 0), "no axis 'data'");
}

}  // namespace
}  // namespace deepspeed
