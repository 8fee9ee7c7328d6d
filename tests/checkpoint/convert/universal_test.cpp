#include "deepspeed/checkpoint/convert/universal.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kUniversalTag = "global_step5";

/// Has two groups of odd sizes, 5 + 8 elements and 3. The first is cut inside b.weight.
const std::vector<NamedShapes> kUniversalShapes = {{{"a.weight", {5}}, {"b.weight", {2, 4}}},
                                                   {{"c.bias", {3}}}};

ModelStates small_model(const std::vector<NamedShapes>& groups) {
  ModelStates model;
  model.global_steps = 5;
  model.client_state = {{"large", at::arange(40'000)}};  // stays in the file until it is written
  for (const NamedShapes& group : groups) {
    for (const auto& [name, shape] : group)
      model.states.module.emplace_back(name, at::full(shape, 0.5, at::kBFloat16));
  }
  model.states.module.emplace_back("head.weight", model.states.module[1].tensor);
  model.states.shared_params = {{"head.weight", "b.weight"}};
  return model;
}

/// Writes masters with element i = begin + i. exp_avg is 1000 larger, exp_avg_sq 2000 larger.
void write_partitions(const fs::path& dir, int world_size, const Value& info = {}) {
  ModelStates model = small_model(kUniversalShapes);
  model.states.param_shapes = kUniversalShapes;
  Value file = build_model_states(model);
  if (!info.is_none()) std::get<Dict>(file.data()).set("universal_checkpoint_info", info);
  fs::create_directories(dir / kUniversalTag);
  write_torch_archive(model_states_path(dir, kUniversalTag), file);
  for (int rank = 0; rank < world_size; ++rank) {
    ZeroOptimizerStates optimizer;
    optimizer.loss_scaler.dynamic = true;
    optimizer.loss_scaler.cur_scale = 512;
    for (size_t index = 0; index < kUniversalShapes.size(); ++index) {
      const int64_t numel = index == 0 ? 13 : 3, first = index == 0 ? 0 : 100;
      const int64_t alignment = 2 * world_size, partition = (numel + alignment - 1) / alignment * 2;
      const int64_t start = std::min<int64_t>(rank * partition, numel);
      const int64_t end = std::min<int64_t>((rank + 1) * partition, numel);
      PartitionStates group;
      group.fp32 = at::arange(first + start, first + end, at::kFloat);
      group.padding = partition - (end - start);
      group.partition_count = world_size;
      group.step = 7;
      group.options = Json{{"lr", 0.25 + double(index)}, {"betas", {0.9, 0.95}}};
      group.tensors = {{"exp_avg", at::zeros({partition})}, {"exp_avg_sq", at::zeros({partition})}};
      group.tensors[0].second.narrow(0, 0, end - start).copy_(group.fp32 + 1000);
      group.tensors[1].second.narrow(0, 0, end - start).copy_(group.fp32 + 2000);
      int64_t begin = 0;
      for (const auto& [name, shape] : kUniversalShapes[index]) {
        const int64_t size = c10::multiply_integers(shape);
        const Interval common = intersect({begin, begin + size}, {start, end});
        if (!common.empty())
          group.fragments.emplace_back(name, FragmentAddress{common.numel(), common.begin - start});
        begin += size;
      }
      optimizer.groups.push_back(group);
    }
    write_torch_archive(optim_states_path(dir, kUniversalTag, rank), build_optimizer_states(optimizer));
  }
}

Dict read_dict(const fs::path& file) { return read_torch_archive(file).as_dict(); }

std::vector<std::string> keys_of(const Dict& dict) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict.items()) keys.push_back(key.as_string());
  return keys;
}

class UniversalCheckpoint : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UniversalCheckpoint, ::testing::Values(1, 2, 3, 5));

TEST_P(UniversalCheckpoint, HoldsEachParameterWhole) {
  const testing::TemporaryFolder folder;
  write_partitions(folder.path(), GetParam());
  const fs::path out = folder / "universal";
  convert_to_universal(folder / kUniversalTag, out, {.num_workers = 3});
  EXPECT_EQ(read_latest_universal(folder.path()), "universal");
  EXPECT_FALSE(read_latest(folder.path()));
  const std::vector<std::tuple<std::string, std::vector<int64_t>, int64_t>> expected = {
      {"a.weight", {5}, 0}, {"b.weight", {2, 4}, 5}, {"c.bias", {3}, 100}};
  for (const auto& [name, shape, first] : expected) {
    for (const auto& [state, more] : {std::pair{"fp32", 0}, {"exp_avg", 1000}, {"exp_avg_sq", 2000}}) {
      const Dict file = read_dict(universal_state_path(out, name, state));
      EXPECT_EQ(keys_of(file), (std::vector<std::string>{"cat_dim", "param"}));
      EXPECT_EQ(file.at("cat_dim").as_int(), 0);
      const at::Tensor values =
          at::arange(first + more, first + more + c10::multiply_integers(shape), at::kFloat).view(shape);
      EXPECT_TRUE(at::equal(file.at("param").as_tensor(), values)) << name << " " << state;
    }
    // As in DeepSpeed, because torch's Adam only takes a tensor.
    const at::Tensor step = read_torch_archive(universal_state_path(out, name, "step")).as_tensor();
    EXPECT_EQ(step.dim(), 0);
    EXPECT_EQ(step.scalar_type(), at::kFloat);
    EXPECT_EQ(step.item<double>(), 7);
    EXPECT_EQ(find_universal_states(out, name).size(), 4U);
  }
}

TEST_P(UniversalCheckpoint, HoldsWhatTheParametersShare) {
  const testing::TemporaryFolder folder;
  write_partitions(folder.path(), GetParam());
  write_torch_archive(rng_states_path(folder.path(), kUniversalTag, 0), Dict{{"seed", 3}});
  const fs::path out = folder / "universal";
  convert_to_universal(folder / (kUniversalTag + "/"), out);
  const Dict common = read_dict(universal_optimizer_path(out));
  EXPECT_EQ(keys_of(common), (std::vector<std::string>{"loss_scaler", "dynamic_loss_scale", "overflow",
                                                       "clip_grad", "zero_stage", "group_paddings",
                                                       "partition_count", "ds_version", "param_groups"}));
  EXPECT_EQ(common.at("param_groups").as_sequence()[1].as_dict().at("lr").as_double(), 1.25);
  const Dict model = read_dict(model_states_path(folder.path(), "universal"));
  EXPECT_EQ(model.at("universal_checkpoint_info").as_dict().at("universal_checkpoint_version").as_double(),
            0.4);
  EXPECT_EQ(model.at("global_steps").as_int(), 5);
  EXPECT_TRUE(at::equal(model.at("large").as_tensor(), at::arange(40'000)));
  EXPECT_EQ(model.at("module").as_dict().at("head.weight").as_tensor().storage().data(),
            model.at("module").as_dict().at("b.weight").as_tensor().storage().data());
  EXPECT_EQ(read_dict(rng_states_path(folder.path(), "universal", 0)).at("seed").as_int(), 3);

  const Manifest manifest = read_manifest(out);
  EXPECT_EQ(manifest.files.size(), 3U * 4 + 3);
  EXPECT_EQ(find_damage(out, manifest), std::nullopt);
  const OptimizerFiles files = OptimizerFiles::of_universal(out, TagArchives(out), kUniversalShapes);
  EXPECT_EQ(files.loss_scaler()->cur_scale, 512);
  ASSERT_EQ(files.groups().size(), 2U);
  EXPECT_EQ(files.groups()[0].step, 7);
  EXPECT_EQ(files.groups()[1].options.at("lr"), 1.25);
  EXPECT_EQ(files.groups()[0].states, (std::vector<std::pair<std::string, at::ScalarType>>{
                                          {"exp_avg", at::kFloat}, {"exp_avg_sq", at::kFloat}}));
  const at::Tensor part = at::zeros({3}, at::kDouble);
  files.read("b.weight", "exp_avg", {4, 7}, part);
  EXPECT_TRUE(at::equal(part, at::arange(1009, 1012, at::kDouble)));
}

TEST(UniversalConversion, TakesTheModelsWeightsWhereThereAreNoMasters) {
  const testing::TemporaryFolder folder;
  ModelStates model = small_model(kUniversalShapes);
  PlainOptimizerStates plain;
  for (const NamedShapes& shapes : kUniversalShapes) {
    PlainGroupStates& group = plain.groups.emplace_back();
    group.options = Json{{"lr", 0.5}};
    for (const auto& [name, shape] : shapes) {
      group.names.push_back(name);
      group.params.push_back({{{"exp_avg", at::full(shape, 3.0)}}, 9});
    }
  }
  model.optimizer = build_plain_optimizer(plain);
  fs::create_directories(folder / kUniversalTag);
  write_torch_archive(model_states_path(folder.path(), kUniversalTag), build_model_states(model));
  convert_to_universal(folder / kUniversalTag, folder / "universal");
  const fs::path out = folder / "universal";
  EXPECT_TRUE(at::equal(read_dict(universal_state_path(out, "c.bias", "fp32")).at("param").as_tensor(),
                        at::full({3}, 0.5)));
  EXPECT_TRUE(at::equal(read_dict(universal_state_path(out, "b.weight", "exp_avg")).at("param").as_tensor(),
                        at::full({2, 4}, 3.0)));
  EXPECT_EQ(read_torch_archive(universal_state_path(out, "c.bias", "step")).as_int(), 9);
  EXPECT_TRUE(read_dict(model_states_path(folder.path(), "universal")).at("optimizer").is_none());
  EXPECT_EQ(
      OptimizerFiles::of_universal(out, TagArchives(out), kUniversalShapes).groups()[1].options.at("lr"),
      0.5);

  for (PlainGroupStates& group : plain.groups) group.names.clear();  // as in a file written by DeepSpeed
  model.optimizer = build_plain_optimizer(plain);
  write_torch_archive(model_states_path(folder.path(), kUniversalTag), build_model_states(model));
  EXPECT_THAT(error_of<CheckpointError>([&] { convert_to_universal(folder / kUniversalTag, out); }),
              HasSubstr("'param_names'"));
}

TEST(UniversalConversion, MarksParametersAsThePatternsSay) {
  const testing::TemporaryFolder folder;
  const Dict info{{"universal_checkpoint_version", 0.4},
                  {"vocabulary_parameter_patterns", List{R"(b\..*)"}},
                  {"original_vocab_size", 1},
                  {"parameter_with_row_parallelism_patterns", List{"b.weight"}},
                  {"tp_replicated_parameter_patterns", List{"c"}},
                  {"parameter_to_average_patterns", List{"weight"}}};  // matches the start of no name
  write_partitions(folder.path(), 2, info);
  const fs::path out = folder / "universal";
  EXPECT_THAT(error_of<CheckpointError>([&] { convert_to_universal(folder / kUniversalTag, out); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("fits no parameter")));
  EXPECT_FALSE(fs::exists(out));
  convert_to_universal(folder / kUniversalTag, out, {.strict = false});
  const Dict vocabulary = read_dict(universal_state_path(out, "b.weight", "fp32"));
  EXPECT_EQ(keys_of(vocabulary), (std::vector<std::string>{"cat_dim", "vocab_tensor", "param"}));
  EXPECT_EQ(vocabulary.at("cat_dim").as_int(), 1);
  EXPECT_TRUE(at::equal(vocabulary.at("param").as_tensor(), at::arange(5, 9, at::kFloat).view({1, 4})));
  EXPECT_EQ(keys_of(read_dict(universal_state_path(out, "c.bias", "fp32"))),
            std::vector<std::string>{"param"});

  const at::Tensor whole = at::full({8}, -1.0);
  OptimizerFiles::of_universal(out, TagArchives(out), kUniversalShapes)
      .read("b.weight", "fp32", {0, 8}, whole);
  EXPECT_TRUE(at::equal(whole, at::arange(5, 13, at::kFloat) * (at::arange(8) < 4)));
}

TEST(UniversalConversion, NamesTheRankWhoseFileIsMissing) {
  const testing::TemporaryFolder folder;
  write_partitions(folder.path(), 3);
  fs::remove(optim_states_path(folder.path(), kUniversalTag, 1));
  EXPECT_THAT(
      error_of<CheckpointError>([&] { convert_to_universal(folder / kUniversalTag, folder / "universal"); }),
      AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"), HasSubstr("is missing")));
  fs::remove(model_states_path(folder.path(), kUniversalTag));
  EXPECT_THAT(
      error_of<CheckpointError>([&] { convert_to_universal(folder / kUniversalTag, folder / "universal"); }),
      AllOf(HasSubstr("mp_rank_00_model_states.pt"), HasSubstr("is missing")));
}

TEST(UniversalConversion, TakesThePlaceOfAnotherUniversalCheckpointAlone) {
  const testing::TemporaryFolder folder;
  write_partitions(folder.path(), 2);
  folder.write("mine/thesis.txt", "words");
  EXPECT_THAT(error_of<UsageError>([&] { convert_to_universal(folder / kUniversalTag, folder / "mine"); }),
              HasSubstr("is no universal checkpoint"));
  EXPECT_TRUE(fs::exists(folder / "mine/thesis.txt"));
  EXPECT_THAT(error_of<UsageError>([&] { convert_to_universal(folder / kUniversalTag, folder.path()); }),
              HasSubstr("is no universal checkpoint"));
  const fs::path out = folder / "universal";
  convert_to_universal(folder / kUniversalTag, out);
  folder.write("universal/zero/gone/fp32.pt", "of a parameter that the model no longer has");
  convert_to_universal(folder / kUniversalTag, out);
  EXPECT_FALSE(fs::exists(out / "zero" / "gone"));
  EXPECT_THAT(error_of<UsageError>([&] { convert_to_universal(out, folder / "again"); }),
              HasSubstr("universal checkpoint already"));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename());
  EXPECT_THAT(names, ::testing::ElementsAre(kUniversalTag, "latest_universal", "mine", "universal"));
}

TEST(UniversalConversion, WritesNoParameterOutsideOfItsFolder) {
  for (const std::string name : {"../../escaped", "/tmp/escaped", "..", ""})
    EXPECT_ERROR(CheckpointError, universal_state_path("folder", name, "fp32"),
                 "the parameter '" + name + "'", "the name of no folder")
        << name;
}

}  // namespace
}  // namespace deepspeed::checkpoint
