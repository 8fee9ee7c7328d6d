// The numbers are those of DeepSpeed 0.19.6's functions of the same names.
#include "deepspeed/plan/memory_needs.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

using deepspeed::testing::error_of;
using ::testing::HasSubstr;

struct Zero2Case {
  int64_t total_params;
  PlannedHardware hardware;
  bool cpu_offload;
  double factor;
  int64_t cpu_mem;
  int64_t gpu_mem;
};

TEST(MemoryNeeds, EqualDeepSpeedsAtStage2) {
  for (const Zero2Case& wanted : {Zero2Case{2851000000, {1, 1}, true, 1.5, 68424000000, 5702000000},
                                  {2851000000, {8, 2}, true, 1.5, 273696000000, 5702000000},
                                  {2851000001, {3, 2}, false, 1.5, 51318000018, 14255000005},
                                  {7, {3, 1}, false, 1.1, 92, 56},
                                  {0, {1, 1}, true, 1.5, 0, 0}}) {
    const MemoryNeeds found = estimate_zero2_model_states_mem_needs(wanted.total_params, wanted.hardware,
                                                                    wanted.cpu_offload, wanted.factor);
    EXPECT_EQ(found.cpu_mem, wanted.cpu_mem) << wanted.total_params;
    EXPECT_EQ(found.gpu_mem, wanted.gpu_mem) << wanted.total_params;
  }
}

struct Zero3Case {
  int64_t total_params;
  int64_t largest_layer_params;
  PlannedHardware hardware;
  Zero3Placement placement;
  double factor;
  int64_t cpu_mem;
  int64_t gpu_mem;
};

TEST(MemoryNeeds, EqualDeepSpeedsAtStage3) {
  const PlannedHardware two_nodes{3, 2}, one_node{8, 1};
  for (const Zero3Case& wanted :
       {Zero3Case{2851000001, 32000003, two_nodes, {true, true, true}, 1.5, 38488500013, 128000012},
        {2851000000, 32000000, one_node, {true, true, true}, 1.25, 64147500000, 128000000},
        {2851000001, 32000003, two_nodes, {true, true, false}, 1.5, 51318000018, 128000012},
        {2851000000, 32000000, one_node, {true, true, false}, 1.25, 114040000000, 128000000},
        {2851000001, 32000003, two_nodes, {true, false, true}, 1.5, 34212000012, 1078333345},
        {2851000000, 32000000, one_node, {true, false, true}, 1.25, 57020000000, 840750000},
        {2851000001, 32000003, two_nodes, {true, false, false}, 1.5, 51318000018, 1078333345},
        {2851000000, 32000000, one_node, {true, false, false}, 1.25, 114040000000, 840750000},
        {2851000001, 32000003, two_nodes, {false, false, true}, 1.5, 576000054, 8681000015},
        {2851000000, 32000000, one_node, {false, false, true}, 1.25, 1280000000, 6542750000},
        {2851000001, 32000003, two_nodes, {false, false, false}, 1.5, 51318000018, 8681000015},
        {2851000000, 32000000, one_node, {false, false, false}, 1.25, 114040000000, 6542750000}}) {
    const MemoryNeeds found = estimate_zero3_model_states_mem_needs(
        wanted.total_params, wanted.largest_layer_params, wanted.hardware, wanted.placement, wanted.factor);
    EXPECT_EQ(found.cpu_mem, wanted.cpu_mem);
    EXPECT_EQ(found.gpu_mem, wanted.gpu_mem);
  }
}

TEST(MemoryNeeds, AreRefusedForImpossiblePlans) {
  const auto zero2 = [](int64_t params, PlannedHardware hardware, double factor) {
    return error_of<UsageError>(
        [=] { estimate_zero2_model_states_mem_needs(params, hardware, true, factor); });
  };
  EXPECT_THAT(zero2(-1, {1, 1}, 1.5), HasSubstr("total_params is -1"));
  EXPECT_THAT(zero2(10, {0, 1}, 1.5), HasSubstr("1 nodes of 0 GPUs"));
  EXPECT_THAT(zero2(10, {1, 1}, -1.0), HasSubstr("additional_buffer_factor is -1"));
  EXPECT_THAT(error_of<UsageError>([] { estimate_zero3_model_states_mem_needs(10, 11); }),
              HasSubstr("largest_layer_params is 11, expected 0 to total_params, 10"));
}

TEST(MemoryNeeds, TablesShowEveryPlacement) {
  std::ostringstream zero2, zero3;
  estimate_zero2_model_states_mem_needs_all_cold(2'851'000'000, {8, 1}, 1.5, zero2);
  EXPECT_EQ(zero2.str(),
            "Model states of 2851M parameters on 1 node of 8 GPUs, ZeRO stage 2\n"
            "a node's host |         a GPU | with\n"
            "   127.45 GiB |      5.31 GiB | offload_optimizer cpu \n"
            "   127.45 GiB |     11.28 GiB | offload_optimizer none\n");
  estimate_zero3_model_states_mem_needs_all_cold(2'851'000'000, 32'000'000, {8, 1}, 1.5, zero3);
  EXPECT_THAT(zero3.str(), HasSubstr("32M in the largest layer"));
  EXPECT_THAT(zero3.str(), HasSubstr("     1.43 GiB |      6.09 GiB | offload_param none, offload_optimizer "
                                     "none, zero_init 1\n"));
  const std::string rows = zero3.str();
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2 + 6);
}

}  // namespace
}  // namespace deepspeed::zero
