#include "deepspeed/comm/log/comms_logger.h"

#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/init.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using comm::CommsLogger;
using ::testing::HasSubstr;
using ::testing::Not;

void make_calls(const comm::ProcessGroup& group, int count) {
  for (int i = 0; i < count; ++i) {
    at::Tensor tensor = at::ones({256});
    group.all_reduce(tensor);
    at::Tensor whole = at::zeros({256 * group.size()});
    group.all_gather(whole, tensor);
  }
}

TEST(CommsLogger, RecordsSizesTimesAndBandwidthsWhileItIsOn) {
  run_ranks(2, [](comm::World& world) {
    CommsLogger& logger = CommsLogger::instance();
    make_calls(world.group(), 1);
    logger.start();
    EXPECT_TRUE(logger.is_on());
    make_calls(world.group(), 3);
    logger.stop();
    make_calls(world.group(), 1);
    const auto records = logger.records();
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records.at("all_reduce").at(1024).milliseconds.size(), 3u);
    EXPECT_EQ(records.at("all_gather").at(2048).milliseconds.size(), 3u);
    for (const double time : records.at("all_reduce").at(1024).milliseconds) EXPECT_GT(time, 0);
    const comm::Bandwidth mean = records.at("all_gather").at(2048).mean_bandwidth();
    EXPECT_DOUBLE_EQ(mean.bus, mean.algorithm / 2);
    EXPECT_DOUBLE_EQ(logger.link_bytes().between_nodes, 3 * (1024 + 1024));
    logger.reset();
    EXPECT_TRUE(logger.records().empty());
  });
}

TEST(CommsLogger, WatchesTheOperationsThatItIsTold) {
  run_ranks(2, [](comm::World& world) {
    CommsLogger& logger = CommsLogger::instance();
    EXPECT_TRUE(
        throws_error<UsageError>([&] { logger.start({.prof_all = false, .prof_ops = {"all_gathers"}}); },
                                 {"prof_ops", "all_gathers", "all_reduce"}));
    logger.start({.prof_all = false, .prof_ops = {"all_gather"}});
    make_calls(world.group(), 1);
    EXPECT_EQ(logger.records().count("all_reduce"), 0u);
    EXPECT_EQ(logger.records().count("all_gather"), 1u);
    logger.stop_profiling_op({"all_gather"});
    logger.start_profiling_op({"all_reduce"});
    make_calls(world.group(), 1);
    EXPECT_EQ(logger.records().at("all_reduce").at(1024).milliseconds.size(), 1u);
    EXPECT_EQ(logger.records().at("all_gather").at(2048).milliseconds.size(), 1u);
    logger.start_profiling_comms();
    make_calls(world.group(), 1);
    logger.stop_profiling_comms();
    make_calls(world.group(), 1);
    EXPECT_EQ(logger.records().at("all_reduce").at(1024).milliseconds.size(), 3u);
    EXPECT_EQ(logger.records().at("all_gather").at(2048).milliseconds.size(), 2u);
    logger.stop();
  });
}

TEST(CommsLogger, CountsWhatCrossesNodes) {
  run_ranks(4, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    CommsLogger& logger = CommsLogger::instance();
    logger.start({.ranks_per_node = world.ranks_per_node()});
    make_calls(world.group(), 1);
    logger.stop();
    // All-reduce of 1024 bytes: 512 from each rank; all-gather: 1024 from each.
    EXPECT_DOUBLE_EQ(logger.link_bytes().within_node, 512 + 1024);
    EXPECT_DOUBLE_EQ(logger.link_bytes().between_nodes, 2 * (512 + 1024));
    env::set("DEEPSPEED_RANKS_PER_NODE", "3");
    EXPECT_TRUE(throws_error<UsageError>([&] { world.ranks_per_node(); }, {"DEEPSPEED_RANKS_PER_NODE is 3"}));
  });
}

TEST(CommsLogger, SummarisesInDeepSpeedsColumns) {
  run_ranks(2, [](comm::World& world) {
    CommsLogger& logger = CommsLogger::instance();
    logger.start({.ranks_per_node = 2});
    make_calls(world.group(), 2);
    logger.stop();
    const std::string plain = logger.summary();
    for (const char* text : {"Comm. Op            Message Size        Count               Total Latency(ms)",
                             "tput_avg (Gbps)     busbw_avg (Gbps)", "all_reduce\n", "1.00 KB", "2.00 KB",
                             "received within nodes: 4.00 KB, between nodes: 0 B"})
      EXPECT_THAT(plain, HasSubstr(text));
    EXPECT_THAT(plain, Not(HasSubstr("straggler")));
    EXPECT_THAT(logger.summary(world.group()), HasSubstr("Total straggler(ms)"));
    logger.reset();
    EXPECT_THAT(plain, Not(HasSubstr("nothing was logged")));
    EXPECT_THAT(comm::log_summary(), AllOf(HasSubstr("Comm. Op"), HasSubstr("comms_logger.enabled")));
    logger.start();
    EXPECT_THAT(comm::log_summary(), Not(HasSubstr("nothing was logged")));
    logger.stop();
  });
}

TEST(CommsRecord, LeavesTheExtremeTenthsOut) {
  comm::CommsRecord record;
  for (int i = 1; i <= 9; ++i) record.milliseconds.push_back(2);
  record.milliseconds.push_back(1000);
  EXPECT_DOUBLE_EQ(record.mean_milliseconds(), 2);
}

TEST(ByteSizeText, CountsInPowersOf1024) {
  EXPECT_EQ(comm::byte_size_text(0), "0 B");
  EXPECT_EQ(comm::byte_size_text(1023), "1023 B");
  EXPECT_EQ(comm::byte_size_text(1024), "1.00 KB");
  EXPECT_EQ(comm::byte_size_text(711'835'238), "678.86 MB");
}

}  // namespace
}  // namespace deepspeed::testing
