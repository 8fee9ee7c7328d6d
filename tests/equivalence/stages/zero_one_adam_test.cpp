// 0/1 Adam: with an interval of 1 it is Adam, its exchanges are small and become rare, and its training ends
// where Adam's does.
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(ZeroOneAdam, IsAdamBitForBitWhileEachStepRenewsTheSecondMoment) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& precision : exchange_precisions()) {
      const int micro_steps = precision.value("gradient_accumulation_steps", 1);
      const auto both_after = [&](int steps) {
        return std::pair{
            weights_after(with_exact_optimizer("Adam", 0, precision), world, steps * micro_steps),
            weights_after(zero_one_adam(20, precision), world, steps * micro_steps)};
      };
      const auto [exact, same] = both_after(4);
      EXPECT_TRUE(same.equal(exact)) << precision;
      const auto [exact_later, other] = both_after(6);
      EXPECT_FALSE(other.equal(exact_later)) << precision;
    }
  });
}

TEST(ZeroOneAdam, LetsRanksDifferOnlyBetweenExchanges) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const Json& precision : exchange_precisions()) {
        const auto engine = zeropp_engine(zero_one_adam(6, precision), world);
        std::string alike;
        const int micro_steps = precision.value("gradient_accumulation_steps", 1);
        for (int step = 1; step <= 20; ++step) {
          train_zeropp(*engine, micro_steps);
          // The first rank has what it sends, so that all must tell it.
          at::Tensor differ = at::full({1}, all_ranks_have(net_weights(*engine), world) ? 0.0 : 1.0);
          if (world.size() > 1) world.group().all_reduce(differ);
          alike += differ.item<double>() == 0.0 ? '=' : '.';
        }
        // Local steps are 7 to 20; exchanges are at 7, 8 | 10 | 12, 16, 20.
        EXPECT_EQ(alike, world.size() == 1 ? std::string(20, '=') : "========.=.=...=...=") << precision;
      }
    });
  }
}

TEST(ZeroOneAdam, LeavesTheSecondMomentBetweenRenewals) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = zeropp_engine(zero_one_adam(6), world);
    at::Tensor before;
    std::string renewed;
    for (int step = 1; step <= 8; ++step) {
      train_zeropp(*engine, 1);
      const at::Tensor now = engine->optimizer()->state().of(0).state.tensors[1].second.clone();
      renewed += before.defined() && now.equal(before) ? '.' : 'v';
      before = now;
    }
    EXPECT_EQ(renewed, "vvvv.v..");
  });
}

TEST(ZeroOneAdam, TrainsToTheLossOfAdam) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& patch :
         {Json::object(), Json({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}}}})}) {
      const Json exact = with_exact_optimizer("Adam", 0, patch);
      Json config = zero_one_adam(40, patch);
      config["optimizer"]["params"]["var_update_scaler"] = 8;
      config["optimizer"]["params"]["local_step_scaler"] = 20;
      const double first = train_zeropp(*zeropp_engine(exact, world), 1);
      const double plain = train_zeropp(*zeropp_engine(exact, world), 100);
      const double compressed = train_zeropp(*zeropp_engine(config, world), 100);
      EXPECT_LT(plain, 0.5 * first);
      EXPECT_NEAR(compressed, plain, 0.1 * first);
    }
  });
}

TEST(ZeroOneAdam, SendsATwentiethOfTheBytesAndOnlyTheNormBetweenExchanges) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine = zeropp_engine(zero_one_adam(6), counted_world(world, notes));
    std::string sent;
    for (int step = 1; step <= 16; ++step) {
      const double bytes = bytes_of_step(*engine, *notes), part = bytes / kBytesOfAllReduce;
      sent += part >= 1 ? 'A' : part > 0.05 ? '?' : bytes > 2 * sizeof(double) ? 'x' : '.';
    }
    EXPECT_EQ(sent, "AAAAxAxx.x.x...x");
  });
}

TEST(ZeroOneAdam, TakesStepsWithoutARate) {
  run_ranks(2, [](comm::World& world) {
    Json config = zero_one_adam(2);
    config["optimizer"]["params"]["lr"] = 0.0;
    const auto engine = zeropp_engine(config, world);
    const at::Tensor start = net_weights(*engine);
    train_zeropp(*engine, 6);
    EXPECT_TRUE(net_weights(*engine).equal(start));
  });
}

TEST(ZeroOneAdam, RefusesWhatDoesNotFitItByTheKey) {
  run_ranks(2, [](comm::World& world) {
    const auto refuses = [&](const Json& config, const std::vector<std::string>& texts) {
      EXPECT_TRUE(throws_error<ConfigError>([&] { zeropp_engine(config, world); }, texts));
    };
    for (const int stage : {1, 2, 3}) {
      refuses(zero_one_adam(4, {{"zero_optimization", {{"stage", stage}}}}),
              {"zero_optimization.stage: got " + std::to_string(stage), "ZeroOneAdam", "expected 0",
               "each rank steps all parameters"});
    }
    refuses(zero_one_adam(4, {{"gradient_clipping", 1.0}}), {"gradient_clipping: got 1", "expected 0"});
    for (const char* key :
         {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
      refuses(zero_one_adam(4, {{"optimizer", {{"params", {{key, 0}}}}}}),
              {std::string("optimizer.params.") + key});
    refuses(zero_one_adam(4, {{"optimizer", {{"params", {{"comm_backend_name", "compressed"}}}}}}),
            {"optimizer.params.comm_backend_name"});
  });
}

}  // namespace
}  // namespace deepspeed::testing
