#include "deepspeed/checkpoint/weights/weight_source.h"

#include <filesystem>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"

#include "tests/places/places.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kGolden = testing::source_folder() / "tests/golden";

std::map<std::string, at::Tensor> load_all(const WeightSource& source) {
  source.verify();
  std::map<std::string, at::Tensor> weights;
  for (size_t index = 0; index < source.weights().size(); ++index) {
    const auto& [name, described] = source.weights()[index];
    weights[name] = source.load(index);
    EXPECT_EQ(weights[name].sizes(), described.sizes()) << name;
    EXPECT_EQ(weights[name].scalar_type(), described.scalar_type()) << name;
  }
  return weights;
}

/// Returns the content of files written by tests/golden/write_weights.py.
std::map<std::string, at::Tensor> formula_weights() {
  const std::vector<std::pair<const char*, std::vector<int64_t>>> shapes = {
      {"gain", {1}},        {"embed.weight", {7, 5}},  {"frozen.weight", {5, 5}},
      {"frozen.bias", {5}}, {"hidden.weight", {5, 5}}, {"hidden.bias", {5}},
      {"scale", {5}}};
  std::map<std::string, at::Tensor> weights;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const auto& [name, shape] = shapes[k];
    const at::Tensor base = at::full(shape, double(k));
    weights[name] = base + at::arange(base.numel(), at::kFloat).view(shape) / 16;
  }
  weights["calls"] = at::full({}, 8, at::kLong);
  return weights;
}

void expect_formula_weights(const std::map<std::string, at::Tensor>& found, bool with_head) {
  std::map<std::string, at::Tensor> expected = formula_weights();
  if (with_head) expected["head.weight"] = expected["embed.weight"];
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  }
}

TEST(WeightSource, ReadsEachFormOfAFolderThatPythonWrote) {
  for (const char* name : {"bin", "safetensors", "bin_shards", "safetensors_shards"}) {
    SCOPED_TRACE(name);
    const auto source = open_weights(kGolden / "weights" / name);
    const auto weights = load_all(*source);
    expect_formula_weights(weights, weights.contains("head.weight"));
    const auto again = open_weights(source->path());  // by the file's own name
    EXPECT_EQ(again->weights().size(), weights.size());
  }
  expect_formula_weights(load_all(*open_weights(kGolden / "weights/bin")), /*with_head=*/true);
}

TEST(WeightSource, FindsTheStateDictionaryUnderAUsualKey) {
  const auto source = open_weights(kGolden / "weights/trainer.pt");
  EXPECT_EQ(source->weights().size(), 9u);
  EXPECT_TRUE(source->weights()[0].name.starts_with("module."));
  EXPECT_EQ(source->weights()[0].tensor.scalar_type(), at::kHalf);
  const testing::TemporaryFolder folder;
  const auto open = [&](const Value& value, const std::string& key = "") {
    write_torch_archive(folder / "x.pt", value);
    return open_weights(folder / "x.pt", key);
  };
  const auto error = [&](const Value& value, const std::string& key = "") {
    return error_of<CheckpointError>([&] { open(value, key); });
  };
  const Dict one{{"w", at::ones({2})}}, two{{"v", at::ones({3})}, {"note", "text"}};
  EXPECT_EQ(open(two)->weights().size(), 1u);
  EXPECT_THAT(open(two)->other_entries(), ::testing::ElementsAre("note"));
  EXPECT_EQ(open(Dict{{"module", one}, {"state_dict", 5}})->weights()[0].name, "w");
  const Dict both{{"model", one}, {"module", two}, {"ema", two}};
  EXPECT_THAT(error(both), AllOf(HasSubstr("more than one"), HasSubstr("'ema'")));
  EXPECT_EQ(open(both, "ema")->weights()[0].name, "v");
  EXPECT_THAT(error(both, "emma"), AllOf(HasSubstr("'emma'"), HasSubstr("'model', 'module', 'ema'")));
  EXPECT_THAT(error(Dict{{"ema", one}, {"epoch", 3}}), HasSubstr("name its key, of 'ema', 'epoch'"));
  EXPECT_THAT(error(List{Value(1)}), HasSubstr("holds a list, expected a state dictionary"));
  EXPECT_THAT(error(Dict{{3, at::ones({1})}}), HasSubstr("expected texts"));
}

TEST(WeightSource, SaysHowToConvertOldFiles) {
  EXPECT_THAT(
      error_of<NotSupportedError>([] { open_weights(kGolden / "weights/legacy.bin"); }),
      AllOf(HasSubstr("legacy.bin"), HasSubstr("torch before 1.6"), HasSubstr("torch.save(torch.load(")));
}

TEST(WeightSource, NamesOtherFilesAndFoldersThatItRefuses) {
  const testing::TemporaryFolder folder;
  const auto error = [&] { return error_of<CheckpointError>([&] { open_weights(folder / "x.bin"); }); };
  folder.write("x.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("x.bin"), HasSubstr("git lfs pull")));
  for (const char* text : {"", "GGUF", "some text", "\x80\x09zzzzzzzzzz"}) {
    folder.write("x.bin", text);
    EXPECT_THAT(error(), HasSubstr("x.bin\" is neither")) << text;
  }
  EXPECT_ERROR(IoError, open_weights(folder / "absent.bin"), "absent.bin: No such file or directory");
  const auto of_folder = [&] { return error_of<CheckpointError>([&] { open_weights(folder.path()); }); };
  EXPECT_THAT(of_folder(), AllOf(HasSubstr("model.safetensors"), HasSubstr("pytorch_model.bin")));
  folder.write("latest", "global_step5");
  EXPECT_THAT(of_folder(), HasSubstr("load_checkpoint()"));
}

/// Has two safetensors shards with an index.
class WeightShards : public ::testing::Test {
 protected:
  WeightShards() {
    write_safetensors(folder_ / "a.safetensors", {{"x", at::ones({2})}, {"y", at::ones({3})}});
    write_safetensors(folder_ / "b.safetensors", {{"x", at::full({2}, 7.0)}, {"z", at::ones({4})}});
    write_index({{"x", "b.safetensors"}, {"y", "a.safetensors"}, {"z", "b.safetensors"}});
  }
  void write_index(const Json& map) const {
    folder_.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  }
  std::string error() const {
    return error_of<CheckpointError>([&] { open_weights(folder_.path()); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(WeightShards, GiveEachWeightFromTheFileThatTheIndexNames) {
  const auto weights = load_all(*open_weights(folder_.path()));
  EXPECT_EQ(weights.size(), 3u);
  EXPECT_TRUE(at::equal(weights.at("x"), at::full({2}, 7.0)));
}

TEST_F(WeightShards, NameWhatIsMissing) {
  write_index({{"x", "a.safetensors"}, {"y", "b.safetensors"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("b.safetensors"), HasSubstr("lacks 'y'")));
  write_index({{"x", "a.safetensors"}, {"y", "c.safetensors"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("the shard"), HasSubstr("c.safetensors"), HasSubstr("is missing")));
  write_index({{"x", 5}});
  EXPECT_THAT(error(), HasSubstr("model.safetensors.index.json\" is not an index of shards"));
  folder_.write("model.safetensors.index.json", "{\"weight_map\": [[[");
  EXPECT_THAT(error(), HasSubstr("is not an index of shards"));
}

TEST_F(WeightShards, RefuseNamesThatLeadElsewhere) {
  for (const char* name : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", ".", ""}) {
    write_index({{"x", name}});
    EXPECT_NE(error(), "no error") << name;
  }
  write_index({{"x", "model.safetensors.index.json"}});  // itself
  EXPECT_THAT(error(), HasSubstr("is neither"));
}

TEST(WeightSource, TakesTheFp32WeightsOfACheckpoint) {
  const fs::path dir = kGolden / "deepspeed_checkpoints/stage2_bf16";
  const auto weights = load_all(*open_zero_checkpoint(dir));
  const NamedTensors expected = get_fp32_state_dict_from_zero_checkpoint(dir);
  EXPECT_EQ(weights.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(weights.at(name), tensor)) << name;
  EXPECT_ERROR(CheckpointError, open_zero_checkpoint(dir, "global_step9"), "there is no checkpoint folder",
               "global_step9", "pass the folder that holds the tags");
}

}  // namespace
}  // namespace deepspeed::checkpoint
