// Goes on from checkpoints that DeepSpeed wrote (tests/golden/deepspeed_checkpoints): the next losses are its
// own, and what is saved is what it had saved.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/initialize.h"

#include "tests/equivalence/value_differences.h"
#include "tests/places/places.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/small_net.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

const std::string kFolder = (testing::source_folder() / "tests/golden/deepspeed_checkpoints/").string();

Json read_json(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

SmallNetVariant variant_of(const Json& expected) {
  const SmallNetVariant golden;
  return {expected.value("frozen", golden.frozen), expected.value("tied", golden.tied),
          expected.value("groups", golden.groups)};
}

std::shared_ptr<DeepSpeedEngine<SmallNet>> make_golden_engine(const Json& expected,
                                                              const comm::World& world) {
  const SmallNetVariant variant = variant_of(expected);
  auto model = std::make_shared<SmallNet>(expected.at("vocabulary").get<int64_t>(),
                                          expected.at("width").get<int64_t>(), variant);
  const auto groups = small_net_groups(*model, variant);
  return initialize(model, {.config = expected.at("ds_config"), .model_parameters = groups, .world = world})
      .engine;
}

class DeepSpeedCheckpoint : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, DeepSpeedCheckpoint,
                         ::testing::Values("stage1_fp32", "stage2_fp32", "stage1_bf16", "stage2_bf16",
                                           "stage0_fp32_frozen", "stage0_bf16_groups",
                                           "stage0_bf16_torch_adam", "stage0_fp16_shared",
                                           "stage1_fp16_frozen", "stage1_fp32_round_robin",
                                           "stage2_fp16_groups", "stage2_fp32_shared", "stage2_bf16_plain",
                                           "stage3_fp32", "stage3_bf16_groups", "stage3_fp16_frozen"));

TEST_P(DeepSpeedCheckpoint, IsResumedWithTheSameLosses) {
  const std::string folder = kFolder + GetParam();
  const Json expected = read_json(folder + "/expected.json");
  const Json& config = expected.at("ds_config");
  const double tolerance = config.contains("bf16") ? 2e-3 : config.contains("fp16") ? 5e-4 : 1e-5;
  run_ranks(expected.at("world_size").get<int>(), [&](comm::World& world) {
    const auto engine = make_golden_engine(expected, world);
    const LoadResult loaded = engine->load_checkpoint(folder);
    ASSERT_FALSE(loaded.path.empty());
    EXPECT_EQ(loaded.client_state.at("epoch").as_int(), 2);
    EXPECT_EQ(engine->global_steps(), 3);
    EXPECT_EQ(engine->skipped_steps(), expected.value("skipped_steps", 0));
    const FormulaData data{world.size(), expected.at("micro_batch").get<int64_t>(),
                           expected.at("context").get<int64_t>(), expected.at("vocabulary").get<int64_t>()};
    const Json& losses = expected.at("losses_after_save");
    for (size_t step = 0; step < losses.size(); ++step) {
      const FormulaBatch batch = data.batch(static_cast<int64_t>(3 + step), world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      engine->backward(loss);
      engine->step();
      const double wanted = losses[step][static_cast<size_t>(world.rank())].get<double>();
      EXPECT_NEAR(loss.item<double>(), wanted, tolerance * wanted) << "step " << step;
    }
  });
}

// What is right to differ: see docs/checkpoints.md and docs/differences.md.
std::vector<std::string> right_differences(const Json& expected) {
  const Json& config = expected.at("ds_config");
  const Json& zero = config.at("zero_optimization");
  std::vector<std::string> paths = {"/ds_config", "/note", "/epoch"};
  paths.push_back("/optimizer/cur_hysteresis");  // at stage 0 DeepSpeed has none
  // Ours notes them at every stage; at stage 3 DeepSpeed finds none in the module of another rank than 0.
  if (zero.at("stage") == 0 || zero.at("stage") == 3) paths.push_back("/shared_params");
  if (zero.at("stage") == 1) {
    paths.insert(paths.end(), {"/frozen_param_shapes", "/frozen_param_fragments"});
  }
  if (zero.value("round_robin_gradients", false))
    paths.push_back("/optimizer_state_dict/param_slice_mappings");
  if (config.at("optimizer").at("params").value("torch_adam", false)) {
    // torch's steps are tensors, its groups name ways to compute; ours has no scaler that counts in bf16.
    paths.insert(paths.end(), {"/optimizer/cur_iter", "/optimizer/optimizer_state_dict/param_groups"});
    for (const std::string param : {"0", "1", "2", "3", "4"})
      paths.push_back("/optimizer/optimizer_state_dict/state/" + param + "/step");
  }
  for (const std::string optimizer :
       {"/optimizer_state_dict/base_optimizer_state", "/optimizer", "/optimizer/optimizer_state_dict",
        "/optimizer_state_dict/optimizer_state_dict"}) {
    for (const std::string group : {"/param_groups/0", "/param_groups/1"}) {
      paths.push_back(optimizer + group + "/step");         // of DeepSpeed, which reads it in no state
      paths.push_back(optimizer + group + "/param_names");  // of torch, ours alone
    }
  }
  return paths;
}

checkpoint::Dict sorted(checkpoint::Dict dict) {
  std::ranges::sort(dict.items(), {}, [](const auto& item) { return item.first.as_string(); });
  return dict;
}

// Without what may differ: DeepSpeed's module has each layer's buffers beside its parameters. Its optimizer
// in fp32 at stage 0 numbers frozen parameters as well, and counts steps in the last one of a group alone.
checkpoint::Value comparable(checkpoint::Value file) {
  auto& dict = std::get<checkpoint::Dict>(file.data());
  if (const auto* module = dict.find("module")) dict.set("module", sorted(module->as_dict()));
  const checkpoint::Value* optimizer = dict.find("optimizer");
  if (optimizer == nullptr || optimizer->is_none() || optimizer->as_dict().find("state") == nullptr)
    return file;
  checkpoint::Dict plain = optimizer->as_dict();
  checkpoint::List states, groups;
  int64_t steps = 0;
  for (const auto& [index, state] : plain.at("state").as_dict().items())
    steps = std::max(steps, state.as_dict().at("step").as_int());
  for (const auto& [index, state] : plain.at("state").as_dict().items()) {
    checkpoint::Dict counted = state.as_dict();
    counted.set("step", steps);
    states.emplace_back(std::move(counted));
  }
  for (checkpoint::Dict group :
       plain.at("param_groups").as_sequence() | std::views::transform(&checkpoint::Value::as_dict)) {
    group.set("params", checkpoint::None{});
    groups.emplace_back(std::move(group));
  }
  plain.set("state", states);
  plain.set("param_groups", groups);
  dict.set("optimizer", plain);
  return file;
}

/// Stage 3: which elements of a rank's shards of these parameters, one after the other, are none of its
/// padding; DeepSpeed leaves there what it finds in memory.
at::Tensor not_padding(const checkpoint::Dict& shapes, int rank, int ranks) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, shape] : shapes.items()) {
    const int64_t numel = c10::multiply_integers(shape.as_size());
    const Interval own = shard_elements(numel, ranks, rank);
    at::Tensor part = at::zeros({shard_numel(numel, ranks)});
    part.narrow(0, 0, own.numel()).fill_(1);
    parts.push_back(part);
  }
  return at::cat(parts);
}

checkpoint::Value* find_in(checkpoint::Value& dict, const std::string& key) {
  for (auto& [name, value] : std::get<checkpoint::Dict>(dict.data()).items()) {
    if (name.as_string() == key) return &value;
  }
  return nullptr;
}

void mask(checkpoint::Value& value, const at::Tensor& kept) { value = value.as_tensor() * kept; }

/// A file of stage 3 without what lies in the padding; the groups have one sub-group each.
void clear_padding(checkpoint::Value& file, const checkpoint::Dict& model, int rank, int ranks) {
  checkpoint::Value* const frozen = find_in(file, "frozen_param_fragments");
  if (frozen != nullptr && !frozen->is_none()) {
    for (auto& [name, fragment] : std::get<checkpoint::Dict>(frozen->data()).items()) {
      const checkpoint::Dict shape = {{name, model.at("frozen_param_shapes").as_dict().at(name.as_string())}};
      mask(fragment, not_padding(shape, rank, ranks));
    }
  }
  checkpoint::Value* const optimizer = find_in(file, "optimizer_state_dict");
  if (optimizer == nullptr) return;
  auto& groups = std::get<checkpoint::List>(find_in(*optimizer, "fp32_flat_groups")->data());
  const auto& shapes = model.at("param_shapes").as_sequence();
  for (size_t group = 0; group < groups.size(); ++group)
    mask(groups[group], not_padding(shapes[group].as_dict(), rank, ranks));
}

/// The number after "zero_pp_rank_" in a file's name.
int rank_of(const std::string& file) { return std::stoi(file.substr(file.find("rank_") + 5)); }

// Loaded and saved at once: the same bits under the same keys.
TEST_P(DeepSpeedCheckpoint, IsSavedAgainAsItWas) {
  const std::string folder = kFolder + GetParam();
  const Json expected = read_json(folder + "/expected.json");
  const TemporaryFolder saved;
  const int ranks = expected.at("world_size").get<int>();
  run_ranks(ranks, [&](comm::World& world) {
    const auto engine = make_golden_engine(expected, world);
    engine->load_checkpoint(folder);
    engine->save_checkpoint(saved.path().string());
  });
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/global_step3"))
    files.push_back(entry.path().filename());
  const int stage = expected.at("ds_config").at("zero_optimization").at("stage");
  const size_t optimizer_files = stage == 0 ? 0 : ranks, model_files = stage == 3 ? ranks : 1;
  EXPECT_EQ(files.size(), model_files + optimizer_files);
  for (const auto& file : files) {
    const auto read = [&](const std::filesystem::path& from) {
      checkpoint::Value value = comparable(checkpoint::read_torch_archive(from / "global_step3" / file));
      if (stage != 3) return value;
      const int rank = rank_of(file.string());
      const auto model = checkpoint::read_torch_archive(
          from / "global_step3" / message("zero_pp_rank_", rank, "_mp_rank_00_model_states.pt"));
      clear_padding(value, model.as_dict(), rank, ranks);
      return value;
    };
    EXPECT_THAT(differences(read(saved.path()), read(folder), right_differences(expected)),
                ::testing::IsEmpty())
        << file;
  }
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
    const auto engine = initialize(model, {.config = config, .world = world}).engine;
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
