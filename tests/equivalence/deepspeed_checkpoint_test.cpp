// Goes on from checkpoints that DeepSpeed wrote (tests/golden/deepspeed_checkpoints): the next losses are its
// own.
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/small_net.h"

namespace deepspeed::testing {
namespace {

const std::string kFolder = std::string(DEEPSPEED_SOURCE_DIR) + "/tests/golden/deepspeed_checkpoints/";

Json read_json(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

class DeepSpeedCheckpoint : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, DeepSpeedCheckpoint,
                         ::testing::Values("stage1_fp32", "stage2_fp32", "stage1_bf16", "stage2_bf16"));

TEST_P(DeepSpeedCheckpoint, IsResumedWithTheSameLosses) {
  const std::string folder = kFolder + GetParam();
  const Json expected = read_json(folder + "/expected.json");
  const bool bf16 = expected.at("ds_config").contains("bf16");
  run_ranks(expected.at("world_size").get<int>(), [&](comm::World& world) {
    auto model = std::make_shared<SmallNet>(expected.at("vocabulary").get<int64_t>(),
                                            expected.at("width").get<int64_t>());
    auto [engine, optimizer, loader, scheduler] =
        initialize(model, {.config = expected.at("ds_config"), .world = world});
    const LoadResult loaded = engine->load_checkpoint(folder);
    ASSERT_FALSE(loaded.path.empty());
    EXPECT_EQ(loaded.client_state.at("epoch").as_int(), 2);
    EXPECT_EQ(engine->global_steps(), 3);
    const FormulaData data{world.size(), expected.at("micro_batch").get<int64_t>(),
                           expected.at("context").get<int64_t>(), expected.at("vocabulary").get<int64_t>()};
    const Json& losses = expected.at("losses_after_save");
    for (size_t step = 0; step < losses.size(); ++step) {
      const FormulaBatch batch = data.batch(static_cast<int64_t>(3 + step), world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      engine->backward(loss);
      engine->step();
      const double wanted = losses[step][static_cast<size_t>(world.rank())].get<double>();
      EXPECT_NEAR(loss.item<double>(), wanted, (bf16 ? 2e-3 : 1e-5) * wanted) << "step " << step;
    }
  });
}

// What DeepSpeed's ds_to_universal made of two of them (write_universal.py), at another stage and on one or
// three ranks: the mean losses of its own two.
struct Universal {
  const char* name;
  int stage, ranks;
};

class DeepSpeedUniversal : public ::testing::TestWithParam<Universal> {};
INSTANTIATE_TEST_SUITE_P(Golden, DeepSpeedUniversal,
                         ::testing::Values(Universal{"stage1_fp32", 2, 1}, Universal{"stage1_fp32", 0, 2},
                                           Universal{"stage2_bf16", 1, 4}, Universal{"stage2_bf16", 0, 1}));

TEST_P(DeepSpeedUniversal, IsResumedElsewhereWithTheSameLosses) {
  const std::string folder = kFolder + GetParam().name;
  const Json expected = read_json(folder + "/expected.json");
  Json config = expected.at("ds_config");
  const bool bf16 = config.contains("bf16");
  const int64_t micro_batch =
      expected.at("micro_batch").get<int64_t>() * expected.at("world_size").get<int64_t>() / GetParam().ranks;
  config["zero_optimization"]["stage"] = GetParam().stage;
  config["train_micro_batch_size_per_gpu"] = micro_batch;
  config["checkpoint"]["load_universal"] = true;
  run_ranks(GetParam().ranks, [&](comm::World& world) {
    auto model = std::make_shared<SmallNet>(expected.at("vocabulary").get<int64_t>(),
                                            expected.at("width").get<int64_t>());
    const auto engine = std::get<0>(initialize(model, {.config = config, .world = world}));
    const LoadResult loaded = engine->load_checkpoint(folder);
    EXPECT_EQ(loaded.client_state.at("epoch").as_int(), 2);
    const FormulaData data{world.size(), micro_batch, expected.at("context").get<int64_t>(),
                           expected.at("vocabulary").get<int64_t>()};
    int64_t step = engine->global_steps();
    ASSERT_EQ(step, 3);
    for (const Json& losses : expected.at("losses_after_save")) {
      const FormulaBatch batch = data.batch(step++, world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      engine->backward(loss);
      engine->step();
      const double wanted = (losses[0].get<double>() + losses[1].get<double>()) / 2;
      const double mean = world.group().all_reduce_scalar(loss.item<double>()) / world.size();
      EXPECT_NEAR(mean, wanted, (bf16 ? 4e-3 : 1e-5) * wanted) << "step " << step;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
