// How gradients of several ranks become one: what travels, and what it is multiplied by before and after.
#include <cmath>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

Json averaged(int stage, const Json& patch) {
  Json config = basic(
      {{"gradient_clipping", 0.0}, {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 150}}}});
  config.merge_patch(patch);
  // Stage 2 scatters a mean as it is; divided before the sum, it is made on every rank.
  if (patch.contains("prescale_gradients") || patch.contains("gradient_predivide_factor")) {
    config["zero_optimization"]["reduce_scatter"] = false;
  }
  return config;
}

/// What the two ranks' gradients become.
double reduced(const Json& config, const comm::World& world, double on_rank_0, double on_rank_1) {
  const auto engine = make_engine(config, world);
  const at::Tensor gain = engine->module().named_parameters()["gain"];
  {
    const zero::ParameterAccess whole(std::vector<at::Tensor>{gain});  // at stage 3
    engine->backward(gain.to(at::kFloat).sum() * (world.rank() == 0 ? on_rank_0 : on_rank_1));
  }
  return safe_get_full_grad(*engine, gain).item<double>();
}

TEST(Averaging, IsAMeanOrASum) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const auto of = [&](const Json& patch) { return reduced(averaged(stage, patch), world, 3.0, 5.0); };
      EXPECT_EQ(of(Json::object()), 4.0);
      EXPECT_EQ(of({{"gradient_allreduce_op", "mean"}}), 4.0);
      EXPECT_EQ(of({{"gradient_allreduce_op", "SUM"}}), 8.0);
      EXPECT_EQ(of({{"prescale_gradients", true}}), 4.0);
      EXPECT_EQ(of({{"gradient_predivide_factor", 4.0}}), 4.0);
      EXPECT_EQ(of({{"gradient_allreduce_op", "sum"}, {"gradient_predivide_factor", 4.0}}), 8.0);
    }
  });
}

TEST(Averaging, LeavesTheGradientsOfOneRankAsTheyAre) {
  run_ranks(1, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const Json& patch : std::vector<Json>{{{"gradient_predivide_factor", 4.0}},
                                                 {{"prescale_gradients", true}},
                                                 {{"gradient_allreduce_op", "sum"}}}) {
        if (stage == 3 && patch.contains("gradient_allreduce_op")) continue;  // refused there
        Json config = averaged(stage, patch);
        if (stage == 3) config["zero_optimization"]["reduce_scatter"] = false;
        EXPECT_EQ(reduced(config, world, 3.0, 0.0), 3.0) << "stage " << stage << " " << patch;
      }
    }
  });
}

// 40000 + 40000 is more than fp16 holds; half of each, and a quarter, is not.
TEST(Averaging, PrescaleAndPredivideDivideBeforeTheSum) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const auto of = [&](Json patch) {
        patch["communication_data_type"] = "fp16";
        return reduced(averaged(stage, patch), world, 40000.0, 40000.0);
      };
      // Stages 1 and 2 divide before as well, unless every rank gets the sum of all elements.
      EXPECT_EQ(std::isinf(of(Json::object())), stage == 0) << "stage " << stage;
      EXPECT_TRUE(std::isinf(of({{"zero_optimization", {{"reduce_scatter", false}}}}))) << "stage " << stage;
      EXPECT_EQ(of({{"prescale_gradients", true}}), 40000.0) << "stage " << stage;
      EXPECT_EQ(of({{"gradient_predivide_factor", 4.0}}), 40000.0) << "stage " << stage;
      // A factor below the ranks' number divides too little.
      EXPECT_TRUE(std::isinf(of({{"gradient_predivide_factor", 1.125}}))) << "stage " << stage;
    }
  });
}

TEST(Averaging, GradientsTravelInTheDtypeThatIsAsked) {
  run_ranks(2, [](comm::World& world) {
    constexpr double kBelowBf16 = 1.0 + 1.0 / 512;    // 8 bits do not hold it, 11 do
    constexpr double kBelowHalf = 1.0 + 1.0 / 16384;  // neither do 11
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(message("stage ", stage));
      const auto of = [&](const char* dtype, double value) {
        Json patch = Json::object();
        if (dtype != nullptr) patch["communication_data_type"] = dtype;
        return reduced(averaged(stage, patch), world, value, value);
      };
      EXPECT_EQ(of(nullptr, kBelowHalf), kBelowHalf) << "fp32 travels in fp32";
      EXPECT_EQ(of("fp32", kBelowHalf), kBelowHalf);
      EXPECT_EQ(of("fp16", kBelowHalf), 1.0);
      EXPECT_EQ(of("fp16", kBelowBf16), kBelowBf16);
      EXPECT_EQ(of("bf16", kBelowBf16), 1.0);
    }
  });
}

// Sums of bf16 gradients that are kept in fp32: 1 on one rank and 1/512 on the other.
TEST(Averaging, GradientsOfBf16TravelInBf16UnlessAsked) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(message("stage ", stage));
      const auto of = [&](const Json& patch) {
        Json all = {{"bf16", {{"enabled", true}}}};
        all.merge_patch(patch);
        return reduced(averaged(stage, all), world, 1.0, 1.0 / 512);
      };
      const double exact = (1.0 + 1.0 / 512) / 2, rounded = 0.5;
      const Json sums = {{"grad_accum_dtype", "fp32"}};
      EXPECT_EQ(of(Json::object()), rounded);
      EXPECT_EQ(of({{"data_types", sums}, {"communication_data_type", "bf16"}}), rounded);
      EXPECT_EQ(of({{"data_types", sums}, {"communication_data_type", "fp32"}}), exact);
      // Stages 2 and 3 reduce the gradients themselves, and not sums of them.
      EXPECT_EQ(of({{"data_types", sums}}), stage < 2 ? exact : rounded);
      if (stage == 0) continue;
      const Json host = {{"data_types", sums},
                         {"communication_data_type", "fp32"},
                         {"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}}}}}};
      EXPECT_EQ(of(host), exact);
    }
  });
}

TEST(Averaging, ChangesWithTheReductionsAfterACall) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(message("stage ", stage));
      const auto engine = make_engine(averaged(stage, Json::object()), world);
      const at::Tensor gain = engine->module().named_parameters()["gain"];
      const auto reduce = [&] {
        engine->zero_grad();
        engine->backward(gain.to(at::kFloat).sum() * (world.rank() == 0 ? 3.0 : 5.0));
        return safe_get_full_grad(*engine, gain).item<double>();
      };
      EXPECT_TRUE(engine->gradient_average());
      EXPECT_EQ(reduce(), 4.0);
      engine->set_gradient_average(false);
      EXPECT_FALSE(engine->gradient_average());
      EXPECT_EQ(engine->config().gradient_allreduce_op, "sum");
      EXPECT_EQ(reduce(), 8.0);
      engine->set_gradient_average(true);
      EXPECT_EQ(reduce(), 4.0);
    }
  });
}

// Muon makes small directions of a gradient up to 485 times larger, and so a last bit. With this loss scale
// fp16 halves gradients exactly, and there is none.
TEST(Averaging, MuonTrainsEquallyOnMeansAndOnSumsOfHalves) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const auto train = [&](const char* op) {
        const bool is_sum = std::string(op) == "sum";
        const auto engine = make_engine(
            averaged(stage, {{"gradient_allreduce_op", op},
                             {"fp16", {{"enabled", true}, {"loss_scale", 4096}}},
                             {"optimizer", {{"type", "Muon"}, {"params", {{"ns_method", "gram"}}}}}}),
            world);
        for (int step = 0; step < 5; ++step) {
          const auto [inputs, targets] = odd_batch(4 * (2 * step + world.rank()), 4);
          const at::Tensor loss = engine->forward(inputs.to(at::kHalf), targets);
          engine->backward(is_sum ? loss / 2 : loss);
          engine->step();
        }
        std::vector<at::Tensor> weights;
        for (const at::Tensor& param : engine->module().parameters()) {
          if (param.requires_grad())
            weights.push_back(safe_get_full_fp32_param(*engine, param).reshape({-1}));
        }
        EXPECT_EQ(engine->skipped_steps(), 0);
        return at::cat(weights);
      };
      EXPECT_TRUE(train("mean").equal(train("sum"))) << "stage " << stage;
    }
  });
}

TEST(Averaging, IsNoSumAtStage3NorWithinABackward) {
  const auto sharded = make_engine(averaged(3, Json::object()));
  EXPECT_ERROR(UsageError, sharded->set_gradient_average(false), "set_gradient_average(false)",
               "not supported with ZeRO stage 3");
  EXPECT_TRUE(sharded->gradient_average());
  const auto engine = make_engine(averaged(0, Json::object()));
  engine->module().named_parameters()["gain"].sum().backward();
  EXPECT_ERROR(UsageError, engine->set_gradient_average(false), "within a backward");
}

}  // namespace
}  // namespace deepspeed::testing
