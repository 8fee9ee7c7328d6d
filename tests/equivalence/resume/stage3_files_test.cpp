// What others read of the files of stage 3: zero_to_fp32, ds_to_universal, and the model's own weights.
#include <filesystem>

#include <ATen/ops/equal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/load_weights.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;

Json files_config(const std::string& precision, Json zero = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", 3}, {"sub_group_size", 40}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  config["zero_optimization"].update(zero);
  return config;
}

auto trained_engine(comm::World& world, const Json& config) {
  auto engine = initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
  const auto type = engine->module().parameters().front().scalar_type();
  for (int64_t step = 0; step < 2; ++step) {
    const auto [inputs, targets] = odd_batch(8 * step + 4 * world.rank(), 4);
    engine->backward(engine->forward(inputs.to(type), targets));
    engine->step();
  }
  return engine;
}

/// The masters of the trained parameters; of frozen ones and buffers the values, in fp32.
NamedTensors expected_weights(const DeepSpeedEngine<OddNet>& engine, OddNet& model) {
  NamedTensors expected;
  const zero::GatheredParameters gathered(model.parameters());
  for (const auto& item : model.named_parameters()) {
    expected.emplace_back(item.key(), item.value().requires_grad()
                                          ? safe_get_full_fp32_param(engine, item.value())
                                          : item.value().to(at::kFloat, false, true));
  }
  for (const auto& item : model.named_buffers())
    expected.emplace_back(item.key(), item.value().to(at::kFloat));
  return expected;
}

class Stage3Files : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Matrix, Stage3Files,
                         ::testing::Values(std::tuple(1, "fp32"), std::tuple(2, "fp32"),
                                           std::tuple(3, "bf16"), std::tuple(4, "fp16")));

TEST_P(Stage3Files, AreReadByZeroToFp32) {
  const auto [ranks, precision] = GetParam();
  const TemporaryFolder folder;
  run_ranks(ranks, [&, precision = precision](comm::World& world) {
    const auto engine = trained_engine(world, files_config(precision));
    engine->save_checkpoint(folder.path());
    const auto expected = expected_weights(*engine, engine->module());
    if (world.rank() != 0) return;
    const auto found = checkpoint::get_fp32_state_dict_from_zero_checkpoint(folder.path());
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      const auto entry = std::ranges::find(found, name, &NamedTensor::name);
      ASSERT_NE(entry, found.end()) << name;
      EXPECT_TRUE(at::equal(entry->tensor, tensor)) << name;
    }
    auto plain = std::make_shared<OddNet>();
    load_state_dict_from_zero_checkpoint(plain, folder.path());
    EXPECT_TRUE(at::equal(plain->named_parameters()["frozen"].detach(),
                          std::ranges::find(expected, "frozen", &NamedTensor::name)->tensor));
  });
}

TEST_P(Stage3Files, BecomeAUniversalCheckpointWithWholeWeights) {
  const auto [ranks, precision] = GetParam();
  const TemporaryFolder folder;
  run_ranks(ranks, [&, precision = precision](comm::World& world) {
    const auto engine = trained_engine(world, files_config(precision));
    engine->save_checkpoint(folder.path());
    const auto expected = expected_weights(*engine, engine->module());
    if (world.rank() != 0) return;
    checkpoint::convert_to_universal(folder / "global_step2", folder / "universal");
    const auto file =
        checkpoint::read_torch_archive(checkpoint::model_states_path(folder.path(), "universal"));
    const checkpoint::Dict& module = file.as_dict().at("module").as_dict();
    for (const auto& [name, tensor] : expected) {
      const at::Tensor& whole = module.at(name).as_tensor();
      EXPECT_TRUE(at::equal(whole, tensor.to(whole.scalar_type()))) << name;
    }
    EXPECT_EQ(module.at("gain").as_tensor().scalar_type(),
              engine->module().parameters().front().scalar_type());
  });
}

TEST_P(Stage3Files, HoldTheModelsOwnWeightsIfAllowed) {
  const auto [ranks, precision] = GetParam();
  const TemporaryFolder folder;
  run_ranks(ranks, [&, precision = precision](comm::World& world) {
    const auto refused = trained_engine(world, files_config(precision));
    EXPECT_THAT(error_of<UsageError>([&] { refused->save_16bit_model(folder.path()); }),
                HasSubstr("stage3_gather_16bit_weights_on_model_save"));
    const auto engine =
        trained_engine(world, files_config(precision, {{"stage3_gather_16bit_weights_on_model_save", true}}));
    engine->save_16bit_model(folder.path());
    const zero::GatheredParameters gathered(engine->module().parameters());
    if (world.rank() != 0) return;
    const auto file = checkpoint::read_torch_archive(folder / "pytorch_model.bin");
    for (const auto& item : engine->module().named_parameters())
      EXPECT_TRUE(at::equal(file.as_dict().at(item.key()).as_tensor(), item.value())) << item.key();
  });
}

// A model may be larger than a rank's memory.
TEST(Stage3Checkpoint, IsReadOneTensorAtATimeWithoutOptimizerStates) {
  const TemporaryFolder folder;
  for (const bool is_sharded : {true, false}) {
    run_ranks(2, [&](comm::World& world) {
      const auto make = [&](int stage) {
        auto model = std::make_shared<TinyGPT>(
            TinyGPTConfig{.vocabulary = 64, .context = 8, .width = 128, .layers = 10, .heads = 4});
        return initialize(model, {.config = files_config("fp32", {{"stage", stage}}), .world = world}).engine;
      };
      make(is_sharded ? 3 : 2)->save_checkpoint(folder.path());
      const auto engine = make(3);
      int64_t all = 0;
      for (const auto& entry : engine->model().parameters) all += static_cast<int64_t>(entry.tensor.nbytes());
      const AllocationCounter counter;
      engine->load_checkpoint(folder.path(), {.load_optimizer_states = false});
      EXPECT_LT(counter.peak_bytes(), all / 3);  // a few tensors, and a buffer of 1 MiB to verify the files
    });
  }
}

TEST(Stage3Checkpoint, NamesTheRankWhoseFileIsMissing) {
  const TemporaryFolder folder;
  run_ranks(3, [&](comm::World& world) {
    const auto engine = trained_engine(world, files_config("fp32"));
    engine->save_checkpoint(folder.path());
    engine->save_checkpoint(folder.path(), {.tag = "other"});
    if (world.rank() == 0) {
      std::filesystem::remove(checkpoint::optim_states_path(folder.path(), "global_step2", 1));
      std::filesystem::remove(checkpoint::sharded_model_states_path(folder.path(), "other", 2));
    }
    world.group().barrier();
    EXPECT_THAT(
        error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path(), {.tag = "global_step2"}); }),
        HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"));
    EXPECT_THAT(error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path(), {.tag = "other"}); }),
                HasSubstr("zero_pp_rank_2_mp_rank_00_model_states.pt"));
  });
}

}  // namespace
}  // namespace deepspeed::testing
