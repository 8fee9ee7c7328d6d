#include "deepspeed/checkpoint/convert/zero_to_fp32.h"

#include <fstream>
#include <map>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/support/bf16_optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

const std::string kTag = "global_step5";

/// Has two groups of odd sizes, 5 + 8 elements and 3. They are flattened and padded as in DeepSpeed.
const std::vector<NamedShapes> kShapes = {{{"a.weight", {5}}, {"b.weight", {2, 4}}}, {{"c.bias", {3}}}};

void write_checkpoint(const std::filesystem::path& dir, int world_size, bool list_frozen = true) {
  ModelStates model;
  model.states.buffer_names = {"steps"};
  model.states.param_shapes = kShapes;
  model.states.shared_params = {{"head.weight", "b.weight"}};
  model.states.module = {{"steps", at::arange(2)}, {"frozen", at::ones({2}, at::kBFloat16)}};
  for (const NamedShapes& group : kShapes) {
    for (const auto& [name, shape] : group) {
      model.states.module.emplace_back(name, at::zeros(shape, at::kBFloat16));
    }
  }
  model.states.module.emplace_back("head.weight", at::zeros({2, 4}, at::kBFloat16));
  if (list_frozen) {
    model.states.frozen_param_shapes = {{"frozen", {2}}};
    model.states.frozen_param_fragments = {{"frozen", at::ones({2}, at::kBFloat16)}};
  }
  std::filesystem::create_directories(dir / kTag);
  write_torch_archive(model_states_path(dir, kTag), build_model_states(model));
  for (int rank = 0; rank < world_size; ++rank) {
    ZeroOptimizerStates optimizer;
    optimizer.zero_stage = list_frozen ? 2 : 1;
    for (const auto& [begin, numel] : {std::pair{0, 13}, std::pair{100, 3}}) {
      const int64_t alignment = 2 * world_size;
      const int64_t partition = (numel + alignment - 1) / alignment * 2;
      const int64_t start = std::min<int64_t>(rank * partition, numel);
      const int64_t end = std::min<int64_t>((rank + 1) * partition, numel);
      PartitionStates group;
      group.fp32 = at::arange(begin + start, begin + end, at::kFloat);
      group.padding = partition - (end - start);
      group.partition_count = world_size;
      optimizer.groups.push_back(group);
    }
    write_torch_archive(optim_states_path(dir, kTag, rank), build_optimizer_states(optimizer));
  }
  write_latest(dir, kTag);
}

class EveryWorldSize : public ::testing::TestWithParam<int> {};

TEST_P(EveryWorldSize, GivesTheWeightsInDeepSpeedsOrder) {
  const testing::TemporaryFolder folder;
  write_checkpoint(folder.path(), GetParam());
  const NamedTensors weights = get_fp32_state_dict_from_zero_checkpoint(folder.path());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights) {
    names.push_back(name);
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("steps", "frozen", "a.weight", "b.weight", "c.bias", "head.weight"));
  EXPECT_TRUE(at::equal(weights[2].tensor, at::arange(5, at::kFloat)));
  EXPECT_TRUE(at::equal(weights[3].tensor, at::arange(5, 13, at::kFloat).view({2, 4})));
  EXPECT_TRUE(at::equal(weights[4].tensor, at::arange(100, 103, at::kFloat)));
  EXPECT_EQ(weights[5].tensor.const_data_ptr(), weights[3].tensor.const_data_ptr());
}

INSTANTIATE_TEST_SUITE_P(ZeroToFp32, EveryWorldSize, ::testing::Values(1, 2, 3));

TEST(ZeroToFp32, FrozenParametersComeFromTheModuleWhereTheFileDoesNotListThem) {
  const testing::TemporaryFolder folder;
  write_checkpoint(folder.path(), 2, /*list_frozen=*/false);
  const auto has_frozen = [&](bool exclude) {
    const NamedTensors weights = get_fp32_state_dict_from_zero_checkpoint(folder.path(), kTag, exclude);
    return std::ranges::any_of(weights, [](const auto& item) { return item.name == "frozen"; });
  };
  EXPECT_TRUE(has_frozen(false));
  EXPECT_FALSE(has_frozen(true));
}

TEST(ZeroToFp32, ReadsTheFilesOfDeepSpeedsBf16Optimizer) {
  for (const int world_size : {1, 2, 3, 4}) {
    const testing::TemporaryFolder folder;
    write_checkpoint(folder.path(), world_size, /*list_frozen=*/false);
    const NamedTensors expected = get_fp32_state_dict_from_zero_checkpoint(folder.path());
    for (int rank = 0; rank < world_size; ++rank) {
      const auto path = optim_states_path(folder.path(), kTag, rank);
      write_torch_archive(path, testing::in_bf16_optimizer_form(read_torch_archive(path)));
    }
    const NamedTensors found = get_fp32_state_dict_from_zero_checkpoint(folder.path());
    ASSERT_EQ(found.size(), expected.size());
    for (size_t index = 0; index < found.size(); ++index)
      EXPECT_TRUE(at::equal(found[index].tensor, expected[index].tensor)) << found[index].name;
  }
}

TEST(ZeroToFp32, AStage0CheckpointGivesItsModule) {
  const testing::TemporaryFolder folder;
  ModelStates model;
  const at::Tensor tied = at::ones({3}, at::kBFloat16);
  model.states.module = {{"w", tied}, {"head", tied}};
  std::filesystem::create_directories(folder / kTag);
  write_torch_archive(model_states_path(folder.path(), kTag), build_model_states(model));
  const NamedTensors weights = get_fp32_state_dict_from_zero_checkpoint(folder.path(), kTag);
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_TRUE(at::equal(weights[0].tensor, at::ones({3})));
  EXPECT_EQ(weights[0].tensor.const_data_ptr(), weights[1].tensor.const_data_ptr());
}

TEST(ZeroToFp32, FollowsNoLatestThatLeadsElsewhere) {
  const testing::TemporaryFolder folder;
  folder.write("run/latest", "../other");
  folder.write("other/mp_rank_00_model_states.pt", "of another run");
  EXPECT_ERROR(UsageError, get_fp32_state_dict_from_zero_checkpoint(folder / "run"), "'../other' leads out");
  EXPECT_ERROR(UsageError, convert_zero_checkpoint_to_fp32_state_dict(folder / "run", folder / "out.bin"),
               "'../other' leads out");
}

TEST(ZeroToFp32, NamesTheMissingFile) {
  const testing::TemporaryFolder folder;
  const auto read = [&] { get_fp32_state_dict_from_zero_checkpoint(folder.path()); };
  const auto says = [](const std::string& text) {
    return ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr(text));
  };
  EXPECT_THAT(read, says("latest"));
  for (const int rank : {0, 1, 2}) {
    write_checkpoint(folder.path(), 3);
    std::filesystem::remove(optim_states_path(folder.path(), kTag, rank));
    EXPECT_THAT(read, says("zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt"));
  }
  write_checkpoint(folder.path(), 1);  // over the files of three ranks
  EXPECT_THAT(read, says("ranks, expected 1"));
  std::filesystem::remove(model_states_path(folder.path(), kTag));
  EXPECT_THAT(read, says("mp_rank_00_model_states.pt"));
}

TEST(ZeroToFp32, WrongNumbersOfElementsAreErrors) {
  const testing::TemporaryFolder folder;
  const std::pair<int64_t, const char*> cases[] = {
      {12, "group 0 has 12 elements, too few for 'b.weight'"},
      {40, "group 0 have 13 elements, the optimizer files hold 40"}};
  for (const auto& [numel, complaint] : cases) {
    write_checkpoint(folder.path(), 1);
    ZeroOptimizerStates optimizer;
    optimizer.groups.resize(2);
    optimizer.groups[0].fp32 = at::zeros({numel});
    optimizer.groups[1].fp32 = at::zeros({3});
    write_torch_archive(optim_states_path(folder.path(), kTag, 0), build_optimizer_states(optimizer));
    EXPECT_ERROR(CheckpointError, get_fp32_state_dict_from_zero_checkpoint(folder.path()), complaint)
        << numel;
  }
}

TEST(ZeroToFp32, WritesOneFileOrShardsWithAnIndex) {
  const testing::TemporaryFolder folder;
  write_checkpoint(folder.path(), 2);
  const auto one = convert_zero_checkpoint_to_fp32_state_dict(folder.path(), folder / "model.bin");
  EXPECT_EQ(read_torch_archive(one.at(0)).as_dict().size(), 6u);
  const auto shards = convert_zero_checkpoint_to_fp32_state_dict(
      folder.path(), folder / "out", {.max_shard_size = "40", .safe_serialization = true});
  std::ifstream index(folder / "out/model.safetensors.index.json");
  const Json json = Json::parse(index);
  std::map<std::string, at::Tensor> read;
  for (const auto& [name, file] : json.at("weight_map").items()) {
    for (auto& [key, tensor] : read_safetensors(folder / ("out/" + file.get<std::string>()))) {
      if (key == name) read[name] = tensor;
    }
  }
  EXPECT_GT(shards.size(), 3u);
  EXPECT_EQ(read.size(), 6u);
  EXPECT_TRUE(at::equal(read.at("head.weight"), at::arange(5, 13, at::kFloat).view({2, 4})));
  EXPECT_EQ(parse_shard_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_shard_size("2MiB"), 2u << 20);
  EXPECT_ERROR(UsageError, parse_shard_size("5 apples"), "max_shard_size is '5 apples'", "5GB, 200MiB");
}

TEST(ZeroToFp32, TellsHowFarItIsAndSparesCheckpoints) {
  const testing::TemporaryFolder folder;
  write_checkpoint(folder.path(), 2);
  std::vector<std::pair<uint64_t, uint64_t>> told;
  ConvertOptions options;
  options.progress = [&](uint64_t done, uint64_t all) { told.emplace_back(done, all); };
  convert_zero_checkpoint_to_fp32_state_dict(folder.path(), folder / "model.bin", options);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().first, told.back().second);
  for (size_t i = 1; i < told.size(); ++i) EXPECT_GT(told[i].first, told[i - 1].first);
  EXPECT_ERROR(UsageError, convert_zero_checkpoint_to_fp32_state_dict(folder.path(), folder / "latest"),
               "the name of a file of checkpoints", "choose another");
}

/// Applies `change` to the model file.
void change_model(const std::filesystem::path& dir, const std::function<void(ModelStates&)>& change) {
  const std::filesystem::path file = model_states_path(dir, kTag);
  ModelStates model = parse_model_states(read_torch_archive(file));
  change(model);
  write_torch_archive(file, build_model_states(model));
}

TEST(ZeroToFp32, FilesThatContradictEachOtherAreErrors) {
  const testing::TemporaryFolder folder;
  const auto read = [&] { get_fp32_state_dict_from_zero_checkpoint(folder.path()); };
  write_checkpoint(folder.path(), 1);
  change_model(folder.path(), [](ModelStates& model) { model.states.param_shapes->pop_back(); });
  EXPECT_ERROR(CheckpointError, read(), "the model file has 1 parameter groups, the optimizer files have 2");
  write_checkpoint(folder.path(), 1);
  change_model(folder.path(), [](ModelStates& model) { model.states.frozen_param_fragments->clear(); });
  EXPECT_ERROR(CheckpointError, read(), "the frozen parameter 'frozen' has a shape, but no data");
  write_checkpoint(folder.path(), 1);
  change_model(folder.path(), [](ModelStates& model) {
    model.states.frozen_param_shapes = {{"frozen", {3}}};
  });
  EXPECT_ERROR(CheckpointError, read(), "'frozen' has the shape [2], expected [3]");
  write_checkpoint(folder.path(), 2);
  ZeroOptimizerStates optimizer;
  optimizer.groups.resize(1);
  optimizer.groups[0].fp32 = at::zeros({8});
  write_torch_archive(optim_states_path(folder.path(), kTag, 1), build_optimizer_states(optimizer));
  EXPECT_ERROR(CheckpointError, read(), "zero_pp_rank_1", "has 1 groups, expected 2");
  for (const int rank : {0, 1}) std::filesystem::remove(optim_states_path(folder.path(), kTag, rank));
  EXPECT_ERROR(CheckpointError, read(), "zero_pp_rank_0_mp_rank_00_optim_states.pt", "is missing");
  write_torch_archive(model_states_path(folder.path(), kTag), Dict{{"module", 3}});
  EXPECT_ERROR(CheckpointError, read(), "is not a file of this kind of checkpoint");
}

TEST(Safetensors, HoldNoTypeThatTheyHaveNoNameFor) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(UsageError,
               write_safetensors(folder / "x.safetensors", {{"z", at::ones({2}, at::kComplexFloat)}}),
               "'z' has the dtype ComplexFloat", "which safetensors cannot hold");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, ComeBackAndAnyMutationIsReadOrRefused) {
  const testing::TemporaryFolder folder;
  const NamedTensors written = {{"x", at::arange(6, at::kFloat).view({2, 3})},
                                {"h", at::ones({2}, at::kBFloat16)},
                                {"empty", at::zeros({0, 2})},
                                {"scalar", at::ones({}, at::kLong)}};
  write_safetensors(folder / "x.safetensors", written);
  const NamedTensors read = read_safetensors(folder / "x.safetensors");
  ASSERT_EQ(read.size(), written.size());
  for (const auto& [name, tensor] : written) {
    const auto found = std::ranges::find_if(read, [&](const auto& item) { return item.name == name; });
    ASSERT_NE(found, read.end());
    EXPECT_EQ(found->tensor.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(at::equal(found->tensor, tensor));
  }
  std::ifstream file(folder / "x.safetensors", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t position = 0; position < whole.size(); ++position) {
    std::string bytes = whole;
    bytes[position] ^= char(1u << (position % 7));
    std::ofstream(folder / "y.safetensors", std::ios::binary) << bytes;
    try {
      read_safetensors(folder / "y.safetensors");
    } catch (const CheckpointError&) {
    }
    std::ofstream(folder / "y.safetensors", std::ios::binary) << whole.substr(0, position);
    EXPECT_ERROR(CheckpointError, read_safetensors(folder / "y.safetensors"), "y.safetensors") << position;
  }
}

}  // namespace
}  // namespace deepspeed::checkpoint
