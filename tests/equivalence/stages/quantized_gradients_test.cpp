// ZeRO++'s gradients in 4 bits: what crosses the links between nodes, and what a training becomes.
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

const Json kInFourBits = {{"zero_quantized_gradients", true}};
const Json kWithFeedback = {{"zero_quantized_gradients", true}, {"zeropp_loco_param", Json::object()}};

void set_nodes(int ranks_per_node) { env::set("DEEPSPEED_RANKS_PER_NODE", std::to_string(ranks_per_node)); }

TEST(QuantizedGradients, TrainToTheLossOfExactOnesOnEveryShapeOfNodes) {
  const std::vector<Json> patches = {
      Json::object(),
      {{"bf16", {{"enabled", true}}}},
      {{"fp16", {{"enabled", true}, {"initial_scale_power", 30}}}},
      {{"gradient_accumulation_steps", 2}},
      {{"zero_optimization",
        {{"offload_optimizer", {{"device", "cpu"}}}, {"offload_param", {{"device", "cpu"}}}}}}};
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (const Json& patch : patches) {
        const bool is_fp16 = patch.contains("fp16");
        set_nodes(1);
        const double first = train_zeropp(*zeropp_engine(zeropp_config({}, patch), world), 1);
        const int steps = is_fp16 ? 70 : 40;  // some are skipped until the scale fits
        const double exact = train_zeropp(*zeropp_engine(zeropp_config({}, patch), world), steps);
        for (const int per_node : {1, 2, 4}) {
          // Every shape of nodes for plain training, nodes of two ranks for the rest where that goes.
          const bool is_usual = per_node == (world.size() % 2 == 0 ? 2 : 1);
          if (world.size() % per_node != 0 || !(patch.empty() || is_usual)) continue;
          set_nodes(per_node);
          for (const Json& keys : {kInFourBits, kWithFeedback}) {
            const double rounded = train_zeropp(*zeropp_engine(zeropp_config(keys, patch), world), steps);
            EXPECT_NEAR(rounded, exact, 0.03 * first) << patch << ", " << per_node << " ranks a node";
            EXPECT_TRUE(world.size() > 1 || rounded == exact);
          }
        }
      }
    });
  }
}

TEST(QuantizedGradients, SendAnEighthOfTheBytesAndBetweenNodesAFractionOfThat) {
  run_ranks(4, [](comm::World& world) {
    set_nodes(2);
    const auto bytes_of = [&](const Json& keys, const char* collective) {
      const auto notes = std::make_shared<CallNotes>();
      const auto engine = zeropp_engine(zeropp_config(keys), counted_world(world, notes));
      const at::Tensor loss = engine->forward(zeropp_batch(0, world.rank()));
      notes->clear();
      engine->backward(loss);
      int64_t bytes = 0;
      for (const NotedCall& call : *notes) bytes += call.collective == collective ? call.bytes : 0;
      return bytes;
    };
    const int64_t plain = bytes_of({}, "reduce_to_owners");
    const int64_t rest = bytes_of(kInFourBits, "reduce_to_owners");  // the bias
    const int64_t quantized = bytes_of(kInFourBits, "all_to_all");
    EXPECT_LT(rest, 1000);
    // Each of the two exchanges carries its part of 4 of 32 bits, and scales.
    EXPECT_LT(double(quantized), 1.55 * double(plain) / 8);
    EXPECT_GT(double(quantized), 1.45 * double(plain) / 8);
  });
}

// Two nodes of two ranks, in 16 bits; each matrix is used in forward and in backward.
TEST(Zeropp, SendsAQuarterOfTheBytesBetweenNodes) {
  run_ranks(4, [](comm::World& world) {
    set_nodes(2);
    const auto bytes_between_nodes = [&](Json keys, int threshold) {
      keys["stage3_param_persistence_threshold"] = threshold;
      const auto engine = zeropp_engine(zeropp_config(keys, {{"bf16", {{"enabled", true}}}}), world);
      comm::CommsLogger& logger = comm::CommsLogger::instance();
      const auto step = [&] {
        engine->backward(engine->forward(zeropp_input(*engine, 0).requires_grad_()));
        engine->step();
      };
      step();
      logger.reset();
      logger.start({.ranks_per_node = world.ranks_per_node()});
      step();
      logger.stop();
      return logger.link_bytes().between_nodes;
    };
    const Json zeropp = {
        {"zero_quantized_weights", true}, {"zero_hpz_partition_size", 2}, {"zero_quantized_gradients", true}};
    const double plain = bytes_between_nodes(Json::object(), 100);
    const double all = bytes_between_nodes(zeropp, 100);
    EXPECT_GT(plain, 3 * 2 * kRowsOfNet * kColumnsOfNet);
    EXPECT_LE(all, 0.26 * plain) << all << " of " << plain;
    // Where all matrices are persistent, plain ZeRO-3 gathers them once a step, too: of 2 + 2 bytes an
    // element 1/2 + 1/4 are left, since gathers in 8 bits go by nodes.
    constexpr int kDefault = 100'000;
    const double once = bytes_between_nodes(Json::object(), kDefault);
    EXPECT_LT(once, plain);
    EXPECT_LE(bytes_between_nodes(zeropp, kDefault), 0.26 * once);
  });
}

TEST(QuantizedGradients, ContinueAfterAResumeAsIfUninterrupted) {
  const Json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 10}, {"loss_scale_window", 2}}}};
  for (const Json& keys : {kInFourBits, kWithFeedback}) {
    for (const int per_node : {1, 2, 4}) {
      for (const Json& patch : {Json::object(), fp16}) {
        SCOPED_TRACE(message(keys, " ", per_node, " ranks a node ", patch));
        const TemporaryFolder folder;
        run_ranks(4, [&](comm::World& world) {
          set_nodes(per_node);
          const auto first = zeropp_engine(zeropp_config(keys, patch), world);
          train_zeropp(*first, 3);
          first->save_checkpoint(folder.path());
          const double expected = train_zeropp(*first, 3);
          const auto second = zeropp_engine(zeropp_config(keys, patch), world);
          train_zeropp(*second, 2);  // leaves errors of its own, which the checkpoint replaces
          second->load_checkpoint(folder.path());
          EXPECT_EQ(train_zeropp(*second, 3), expected);
        });
      }
    }
  }
}

TEST(QuantizedGradients, ContinueOnOtherRanksAndNodes) {
  for (const Json& keys : {kInFourBits, kWithFeedback}) {
    const TemporaryFolder folder;
    double expected = 0, first = 0;
    run_ranks(4, [&](comm::World& world) {
      set_nodes(2);
      const auto engine = zeropp_engine(zeropp_config(keys), world);
      train_zeropp(*engine, 20);
      engine->save_checkpoint(folder.path());
    });
    for (const auto& [ranks, per_node] : {std::pair(4, 4), {4, 1}, {2, 1}, {3, 1}, {1, 1}}) {
      const auto losses = run_ranks_collect(ranks, [&, per_node = per_node](comm::World& world) {
        set_nodes(per_node);
        const double untrained = train_zeropp(*zeropp_engine(zeropp_config(keys), world), 1);
        const auto engine = zeropp_engine(zeropp_config(keys), world);
        engine->load_checkpoint(folder.path());
        return std::to_string(untrained) + " " + std::to_string(train_zeropp(*engine, 4));
      });
      std::istringstream(losses[0]) >> first >> expected;
      EXPECT_LT(expected, 0.5 * first) << ranks << " ranks, " << per_node << " a node";
    }
  }
}

TEST(QuantizedGradients, ChangeNeitherErrorsNorWeightsInAStepThatOverflows) {
  run_ranks(4, [](comm::World& world) {
    set_nodes(2);
    const Json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}}}};
    const auto interrupted = zeropp_engine(zeropp_config(kWithFeedback, fp16), world);
    train_zeropp(*interrupted, 6);
    const auto weights = [&] {
      const zero::GatheredParameters whole(interrupted->module().parameters());
      return at::cat({interrupted->module().down.detach().view({-1}), interrupted->module().bias.detach()})
          .clone();
    };
    const at::Tensor before = weights();
    const at::Tensor loss = interrupted->forward(zeropp_input(*interrupted, 3));
    interrupted->backward(world.rank() == 2 ? loss * std::numeric_limits<double>::infinity() : loss);
    interrupted->step();
    EXPECT_EQ(interrupted->skipped_steps(), 1);
    EXPECT_TRUE(weights().equal(before));
    EXPECT_TRUE(std::isfinite(train_zeropp(*interrupted, 4)));
    EXPECT_FALSE(weights().equal(before));
  });
}

}  // namespace
}  // namespace deepspeed::testing
