#include "deepspeed/comm/log/bandwidth.h"

#include <gtest/gtest.h>

namespace deepspeed::testing {
namespace {

using comm::bandwidth_of;
using comm::LinkBytes;
using comm::Links;
using comm::received_bytes;

// 1 MB in 2 ms is 4 Gbit/s.
TEST(Bandwidth, HasDeepSpeedsFactors) {
  EXPECT_DOUBLE_EQ(bandwidth_of("broadcast", 1'000'000, 2, 4).algorithm, 4);
  EXPECT_DOUBLE_EQ(bandwidth_of("broadcast", 1'000'000, 2, 4).bus, 4);
  for (const char* name : {"all_gather", "reduce_scatter", "reduce_to_owners", "all_to_all"}) {
    EXPECT_DOUBLE_EQ(bandwidth_of(name, 1'000'000, 2, 4).algorithm, 4) << name;
    EXPECT_DOUBLE_EQ(bandwidth_of(name, 1'000'000, 2, 4).bus, 3) << name;
  }
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 1'000'000, 2, 4).algorithm, 8);
  EXPECT_DOUBLE_EQ(bandwidth_of("all_reduce", 1'000'000, 2, 4).bus, 6);
  EXPECT_EQ(bandwidth_of("send", 1'000'000, 0, 2).algorithm, 0);
}

// Ranks 0 and 1 are on one node, 2 and 3 on another.
Links four_ranks(int rank, int peer = -1) {
  return {.global_ranks = {0, 1, 2, 3}, .rank = rank, .peer = peer, .ranks_per_node = 2};
}

void expect_links(const LinkBytes& found, double within, double between) {
  EXPECT_DOUBLE_EQ(found.within_node, within);
  EXPECT_DOUBLE_EQ(found.between_nodes, between);
}

TEST(ReceivedBytes, TellLinksWithinANodeFromThoseBetweenNodes) {
  expect_links(received_bytes("all_gather", 400, four_ranks(0)), 100, 200);
  expect_links(received_bytes("reduce_to_owners", 400, four_ranks(3)), 100, 200);
  expect_links(received_bytes("all_reduce", 400, four_ranks(1)), 200, 400);
  expect_links(received_bytes("broadcast", 400, four_ranks(1, 0)), 400, 0);
  expect_links(received_bytes("broadcast", 400, four_ranks(0, 0)), 0, 0);
  expect_links(received_bytes("recv", 400, four_ranks(1, 2)), 0, 400);
  expect_links(received_bytes("send", 400, four_ranks(1, 2)), 0, 0);
  expect_links(received_bytes("barrier", 0, four_ranks(1)), 0, 0);
  const Links across = {.global_ranks = {1, 3}, .rank = 1, .peer = -1, .ranks_per_node = 2};
  expect_links(received_bytes("all_to_all", 400, across), 0, 200);
}

TEST(ReceivedBytes, CountAPartOnceANodeIfItGoesByNodes) {
  Links links = four_ranks(0);
  links.by_nodes = true;
  expect_links(received_bytes("all_gather", 400, links), 200, 100);
  expect_links(received_bytes("reduce_scatter", 400, links), 200, 100);
  expect_links(received_bytes("all_reduce", 400, links), 400, 200);
}

}  // namespace
}  // namespace deepspeed::testing
