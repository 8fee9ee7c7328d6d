// Repeats a training that DeepSpeed (Python, 0.19.6) recorded, and compares losses and weights. Model, data
// and config are those of tests/golden/deepspeed_training: two ranks, fp32, ZeRO stages 0 to 3.
#include <cstdlib>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/message.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/equivalence/golden/golden_training.h"
#include "tests/places/places.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

namespace {

constexpr double kLossBound = 1e-4;
constexpr double kUpdateBound = 1e-3;
constexpr double kNormBound = 1e-4;

Json engine_config(const GoldenTraining& golden, int stage) {
  Json config = golden.ds_config;
  config["zero_optimization"] = zero_config(stage);
  return config;
}

/// What one rank saw of a training.
struct RankHistory {
  std::vector<double> losses;  // [step], the mean over the micro batches
  std::vector<std::optional<double>> norms;
  std::vector<double> learning_rates;
  at::Tensor parameters;
};

template <class Engine>
at::Tensor whole_parameters(Engine& engine) {
  std::vector<at::Tensor> parameters;
  for (const auto& entry : engine.model().parameters) parameters.push_back(entry.tensor);
  const zero::GatheredParameters gathered(parameters);
  return flat_parameters(engine.module());
}

RankHistory train(const GoldenTraining& golden, int stage, const comm::World& world) {
  auto [engine, optimizer, loader, scheduler] =
      deepspeed::initialize(golden.make_model(), {.config = engine_config(golden, stage), .world = world});
  const FormulaData data = golden.data();
  RankHistory history;
  for (int64_t step = 0; step < golden.num_steps; ++step) {
    double sum = 0.0;
    for (int64_t k = 0; k < golden.accumulation(); ++k) {
      const FormulaBatch batch = data.batch(step * golden.accumulation() + k, world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      sum += loss.template item<double>();
      engine->backward(loss);
      if (k + 1 == golden.accumulation()) {
        history.learning_rates.push_back(engine->get_lr().at(0));
      }
      engine->step();
    }
    history.losses.push_back(sum / static_cast<double>(golden.accumulation()));
    history.norms.push_back(engine->get_global_grad_norm());
  }
  history.parameters = whole_parameters(*engine);
  return history;
}

void expect_same_losses(const GoldenTraining& golden, const RankHistory& history, int rank) {
  std::vector<std::vector<double>> got, expected;
  for (size_t step = 0; step < history.losses.size(); ++step) {
    got.push_back({history.losses[step]});
    expected.push_back({golden.losses.at(step).at(rank)});
  }
  const Difference difference = largest_loss_difference(got, expected);
  EXPECT_LE(difference.value, kLossBound) << difference.where << " of the history of rank " << rank;
}

void expect_same_norms(const GoldenTraining& golden, const RankHistory& history, int stage) {
  const Json& expected = golden.grad_norms.at(message("stage", stage));
  for (size_t step = 0; step < history.norms.size(); ++step) {
    if (expected.at(step).is_null() || !history.norms[step]) {
      continue;  // DeepSpeed computes none at stage 0 without clipping
    }
    const double norm = expected.at(step);
    EXPECT_NEAR(*history.norms[step], norm, kNormBound * norm) << "step " << step;
  }
}

}  // namespace

class DeepSpeedTraining : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(DeepSpeedTraining, IsReproducedStepByStep) {
  const auto& [variant, stage] = GetParam();
  const GoldenTraining golden = load_golden_training(variant);
  run_ranks(static_cast<int>(golden.world_size), [&, stage = stage](comm::World& world) {
    const RankHistory history = train(golden, stage, world);
    expect_same_losses(golden, history, world.rank());
    expect_same_norms(golden, history, stage);
    for (size_t step = 0; step < history.learning_rates.size(); ++step) {
      EXPECT_NEAR(history.learning_rates[step], golden.learning_rates.at(step), 1e-9) << "step " << step;
    }
    const Difference update =
        largest_update_difference(*golden.make_model(), history.parameters, golden.parameters);
    EXPECT_LE(update.value, kUpdateBound) << update.where;
  });
}

INSTANTIATE_TEST_SUITE_P(Variants, DeepSpeedTraining,
                         ::testing::Combine(::testing::Values("adamw_clip", "sgd_clip", "sgd"),
                                            ::testing::Values(0, 1, 2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_stage" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(GoldenTraining, IsWhatTheInstalledDeepSpeedGives) {
  const auto python = env::get("DEEPSPEED_REFERENCE_PYTHON");
  if (!python) {
    GTEST_SKIP() << "DEEPSPEED_REFERENCE_PYTHON does not name a Python that has deepspeed 0.19.6";
  }
  const std::string folder = (testing::source_folder() / "tests/golden/deepspeed_training/").string();
  for (const char* script : {"record.py", "record_precision.py"}) {
    EXPECT_EQ(std::system(("'" + *python + "' '" + folder + script + "' --check").c_str()), 0) << script;
  }
}

}  // namespace deepspeed::testing
