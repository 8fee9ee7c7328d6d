// What MiCS sends between nodes, which DEEPSPEED_RANKS_PER_NODE simulates, and gathers in two steps.
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int kMicroSteps = 4;

const Json kInWindows = {{"bf16", {{"enabled", true}}}, {"gradient_accumulation_steps", kMicroSteps}};

/// Bytes that this rank sends to other nodes in one step of several micro steps.
double bytes_between_nodes(const Json& keys, const comm::World& world, const Json& patch = kInWindows) {
  const auto engine = zeropp_engine(zeropp_config(keys, patch), world);
  comm::CommsLogger& logger = comm::CommsLogger::instance();
  const auto step = [&] {
    for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
      engine->backward(engine->forward(zeropp_input(*engine, micro_step)));
      engine->step();
    }
  };
  step();
  logger.reset();
  logger.start({.ranks_per_node = world.ranks_per_node()});
  step();
  logger.stop();
  return logger.link_bytes().between_nodes;
}

TEST(Mics, SendsBetweenNodesWhatReplicasAddOnceAWindow) {
  run_ranks(4, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    const double plain = bytes_between_nodes({}, world);
    const double blocks = bytes_between_nodes({{"mics_shard_size", 2}}, world);
    const double elements = 2 * kRowsOfNet * kColumnsOfNet;
    // Each micro step of plain stage 3 gathers twice and reduces once.
    EXPECT_GT(plain, kMicroSteps * 2 * elements);
    EXPECT_GT(blocks, 0.0);
    EXPECT_LT(blocks, 0.25 * plain) << blocks << " of " << plain;
  });
}

TEST(Mics, GathersOnlyWithinItsBlock) {
  run_ranks(4, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine =
        zeropp_engine(zeropp_config({{"mics_shard_size", 2}}, kInWindows), counted_world(world, notes));
    for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
      notes->clear();
      engine->backward(engine->forward(zeropp_input(*engine, micro_step)));
      int64_t replica_sums = 0;
      for (const NotedCall& call : *notes) {
        const bool is_of_shards = call.collective == "all_gather" || call.collective == "reduce_to_owners";
        EXPECT_TRUE(!is_of_shards || call.num_ranks == 2) << call.collective << " of " << call.subject;
        replica_sums += call.collective == "all_reduce" ? 1 : 0;
      }
      EXPECT_EQ(replica_sums, micro_step == kMicroSteps - 1 ? 1 : 0);
      engine->step();
    }
  });
}

TEST(Mics, GathersByNodesWithTheSameBitsAndHalfTheBytesBetweenThem) {
  run_ranks(4, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    const auto trained = [&](const Json& keys) {
      const auto engine = zeropp_engine(zeropp_config(keys, kInWindows), world);
      train_zeropp(*engine, 8);
      const zero::GatheredParameters gathered({engine->module().up});
      return engine->module().up.detach().clone();
    };
    for (const Json& more : {Json::object(), Json({{"zero_quantized_weights", true}}),
                             Json({{"offload_param", {{"device", "cpu"}}}})}) {
      Json flat = {{"mics_shard_size", 4}};
      flat.update(more);
      Json by_nodes = flat;
      by_nodes["mics_hierarchical_params_gather"] = true;
      EXPECT_TRUE(trained(by_nodes).equal(trained(flat))) << more;
    }
    // Gradients cross the links as before.
    const Json flat = {{"mics_shard_size", 4}};
    const Json by_nodes = {{"mics_shard_size", 4}, {"mics_hierarchical_params_gather", true}};
    const double all = bytes_between_nodes(flat, world), fewer = bytes_between_nodes(by_nodes, world);
    const double elements = 2 * kRowsOfNet * kColumnsOfNet;
    EXPECT_LT(fewer, all - kMicroSteps * 0.7 * elements) << fewer << " of " << all;
  });
}

TEST(Mics, GathersInOneStepOnOneNode) {
  run_ranks(4, [](comm::World& world) {
    env::set("DEEPSPEED_RANKS_PER_NODE", "2");
    const auto notes = std::make_shared<CallNotes>();
    const auto engine = zeropp_engine(
        zeropp_config({{"mics_shard_size", 2}, {"mics_hierarchical_params_gather", true}}, kInWindows),
        counted_world(world, notes));
    notes->clear();
    engine->forward(zeropp_input(*engine, 0));
    for (const NotedCall& call : *notes) EXPECT_EQ(call.num_ranks, 2) << call.collective;
    EXPECT_GE(count_calls(*notes, "all_gather", "parameter 'up'"), 1);
  });
}

}  // namespace
}  // namespace deepspeed::testing
