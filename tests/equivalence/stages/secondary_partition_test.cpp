// ZeRO++'s secondary partition (hpZ): which ranks a gather needs, and that nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/stages/zeropp_net.h"
#include "tests/support/counted_world.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

const Json kSixteenBits = {{"bf16", {{"enabled", true}}}};

Json near_config(int ranks, const Json& keys = Json::object(), const Json& patch = kSixteenBits) {
  Json all = {{"zero_hpz_partition_size", ranks}};
  if (keys.is_object()) all.update(keys);
  return zeropp_config(all, patch);
}

struct Seen {
  double loss = 0;
  at::Tensor up;
};

Seen trained(const Json& config, const comm::World& world) {
  const auto engine = zeropp_engine(config, world);
  Seen seen{train_zeropp(*engine, 5), {}};
  const zero::GatheredParameters gathered({engine->module().up});
  seen.up = engine->module().up.detach().clone();
  return seen;
}

TEST(SecondaryPartition, ChangesNoBitOfATraining) {
  const std::vector<std::pair<int, int>> worlds_and_near = {{2, 1}, {2, 2}, {4, 2}, {4, 4}};
  const std::vector<Json> precisions = {
      kSixteenBits,
      Json::object(),
      {{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}},
      {{"bf16", {{"enabled", true}}}, {"zero_optimization", {{"offload_param", {{"device", "cpu"}}}}}},
      {{"bf16", {{"enabled", true}}}, {"gradient_accumulation_steps", 2}}};
  for (const auto& [ranks, near] : worlds_and_near) {
    run_ranks(ranks, [&, near = near](comm::World& world) {
      for (const Json& precision : precisions) {
        const Seen plain = trained(near_config(1, {}, precision), world);
        const Seen with = trained(near_config(near, {}, precision), world);
        EXPECT_EQ(with.loss, plain.loss) << precision;
        EXPECT_TRUE(with.up.equal(plain.up)) << precision;
      }
    });
  }
}

// Elements that gathers over groups of so many ranks brought.
int64_t gathered_bytes(const CallNotes& notes, int num_ranks) {
  int64_t bytes = 0;
  for (const NotedCall& call : notes)
    if (call.collective == "all_gather" && call.num_ranks == num_ranks) bytes += call.bytes;
  return bytes;
}

TEST(SecondaryPartition, ServesEveryGatherBetweenTwoStepsButTheFirst) {
  run_ranks(4, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine =
        zeropp_engine(near_config(2, {}, {{"bf16", {{"enabled", true}}}, {"gradient_accumulation_steps", 2}}),
                      counted_world(world, notes));
    const int64_t both = 2 * kRowsOfNet * kColumnsOfNet * 2;  // matrices, bytes
    for (int step = 0; step < 2; ++step) {
      for (int micro_step = 0; micro_step < 2; ++micro_step) {
        notes->clear();
        const at::Tensor loss = engine->forward(zeropp_input(*engine, step));
        const bool is_first = micro_step == 0;
        EXPECT_EQ(gathered_bytes(*notes, 4) >= both, is_first);
        EXPECT_EQ(gathered_bytes(*notes, 2), is_first ? 0 : both);
        notes->clear();
        engine->backward(loss);
        EXPECT_EQ(gathered_bytes(*notes, 4), 0);
        EXPECT_EQ(gathered_bytes(*notes, 2), both / 2);  // the inputs need no gradient
        engine->step();
      }
    }
  });
}

TEST(SecondaryPartition, KeepsTheRoundedValuesOnlyForPasses) {
  run_ranks(4, [](comm::World& world) {
    const auto engine = zeropp_engine(near_config(2, {{"zero_quantized_weights", true}}), world);
    ZeroppNet& model = engine->module();
    engine->forward(zeropp_input(*engine, 0));
    const at::Tensor first = model.seen_up;
    engine->forward(zeropp_input(*engine, 0));
    EXPECT_TRUE(model.seen_up.equal(first)) << "the secondary part has other values";
    const zero::GatheredParameters gathered({model.up});
    const at::Tensor exact = ZeroppNet().up.detach().to(at::kBFloat16);
    EXPECT_TRUE(model.up.equal(exact));
    EXPECT_FALSE(first.equal(exact));
  });
}

TEST(SecondaryPartition, FollowsValuesThatAreWrittenLoadedOrMoved) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto engine = zeropp_engine(near_config(2), world);
    ZeroppNet& model = engine->module();
    train_zeropp(*engine, 2);
    engine->save_checkpoint(folder.path());
    engine->forward(zeropp_input(*engine, 0));
    const at::Tensor saved = model.seen_up;
    {
      const zero::GatheredParameters gathered({model.up}, 0);
      const c10::NoGradGuard no_grad;
      if (world.rank() == 0) model.up.fill_(0.5);
    }
    engine->forward(zeropp_input(*engine, 0));
    EXPECT_TRUE(model.seen_up.equal(at::full_like(saved, 0.5)));
    engine->load_checkpoint(folder.path());
    engine->forward(zeropp_input(*engine, 0));
    EXPECT_TRUE(model.seen_up.equal(saved));
    engine->offload_states();
    engine->reload_states();
    engine->forward(zeropp_input(*engine, 0));
    EXPECT_TRUE(model.seen_up.equal(saved));
  });
}

TEST(SecondaryPartition, HasASizeThatDividesTheRanks) {
  run_ranks(4, [](comm::World& world) {
    EXPECT_TRUE(throws_error<ConfigError>([&] { zeropp_engine(near_config(3), world); },
                                          {"zero_hpz_partition_size: got 3", "a divisor of 4"}));
  });
}

TEST(QuantizedNontrainableWeights, RoundOnlyFrozenParameters) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<ZeroppNet>();
    model->up.set_requires_grad(false);
    const auto engine =
        initialize(model,
                   {.config = zeropp_config({{"zero_quantized_nontrainable_weights", true}}), .world = world})
            .engine;
    const auto notes = std::make_shared<CallNotes>();
    engine->forward(zeropp_input(*engine, 0));
    EXPECT_FALSE(model->seen_up.equal(ZeroppNet().up.detach()));
    EXPECT_TRUE(at::allclose(model->seen_up, ZeroppNet().up.detach(), 0.0, 0.1 / 128 * 1.0001));
    model->up.set_requires_grad(true);
    engine->destroy();
    const auto trained =
        initialize(std::make_shared<ZeroppNet>(),
                   {.config = zeropp_config({{"zero_quantized_nontrainable_weights", true}}), .world = world})
            .engine;
    trained->forward(zeropp_batch(0, world.rank()));
    EXPECT_TRUE(trained->module().seen_up.equal(ZeroppNet().up.detach()));
  });
}

}  // namespace
}  // namespace deepspeed::testing
