#include "deepspeed/checkpoint/weights/weight_loading.h"

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

/// Provides weights from memory.
class WeightsInMemory : public WeightSource {
 public:
  explicit WeightsInMemory(NamedTensors weights) : WeightSource("given.bin") {
    weights_ = std::move(weights);
  }
  at::Tensor load(size_t index) const override { return weights_[index].tensor; }
  void verify() const override {}
};

/// Is a model of two matrices and a counter, all zeros. One matrix has two names.
struct Model {
  at::Tensor embed = at::zeros({2, 3}), matrix = at::zeros({3, 4}, at::kBFloat16),
             calls = at::zeros({}, at::kLong);

  std::vector<WeightTarget> targets() const {
    return {{{"embed.weight", "head.weight"}, embed}, {{"h.0.weight"}, matrix}, {{"calls"}, calls}};
  }
  bool is_untouched() const {
    return embed.count_nonzero().item<int64_t>() == 0 && matrix.count_nonzero().item<int64_t>() == 0 &&
           calls.item<int64_t>() == 0;
  }
};

/// Returns weights that fit the model.
NamedTensors fitting() {
  return {{"embed.weight", at::arange(6, at::kFloat).view({2, 3})},
          {"h.0.weight", at::full({3, 4}, 1.0 / 3)},
          {"calls", at::full({}, 5.0)}};
}

LoadedWeights load_into(const Model& model, NamedTensors weights, const LoadWeightsOptions& options = {}) {
  const WeightLoading loading(std::make_shared<WeightsInMemory>(std::move(weights)), model.targets(),
                              options);
  EXPECT_TRUE(model.is_untouched());
  loading.run();
  return loading.result();
}

std::string refusal(NamedTensors weights, const LoadWeightsOptions& options = {}) {
  const Model model;
  const std::string text = error_of<CheckpointError>([&] { load_into(model, std::move(weights), options); });
  EXPECT_TRUE(model.is_untouched());
  return text;
}

NamedTensors replaced(NamedTensors weights, const std::string& name, const at::Tensor& tensor) {
  for (auto& [known, value] : weights) {
    if (known != name) continue;
    value = tensor;
    return weights;
  }
  weights.emplace_back(name, tensor);
  return weights;
}

TEST(WeightLoading, CopiesByNameIntoTheModelsDtypes) {
  const Model model;
  const LoadedWeights loaded = load_into(model, fitting());
  EXPECT_THAT(loaded.loaded, ElementsAre("embed.weight", "h.0.weight", "calls"));
  EXPECT_TRUE(loaded.missing.empty() && loaded.unexpected.empty());
  EXPECT_TRUE(at::equal(model.embed, fitting()[0].tensor));
  EXPECT_TRUE(at::equal(model.matrix, fitting()[1].tensor.to(at::kBFloat16)));
  EXPECT_EQ(model.calls.item<int64_t>(), 5);
}

TEST(WeightLoading, ReportsAllThatDoesNotFitAtOnceAndChangesNothing) {
  const std::string text = refusal({{"embed.weight", at::ones({3, 2})},
                                    {"calls", at::full({}, 2.5)},
                                    {"extra", at::ones({1})},
                                    {"more", at::ones({1})}});
  EXPECT_THAT(text, AllOf(HasSubstr("given.bin"),
                          HasSubstr("'embed.weight' has the shape [3, 2] in the file, [2, 3]"),
                          HasSubstr("'calls' has the dtype Float"), HasSubstr("lacks 'h.0.weight'"),
                          HasSubstr("has no 'extra', 'more'"), HasSubstr("strict = false")));
}

TEST(WeightLoading, NotStrictLoadsWhatBothHaveAndSaysWhatIsLeft) {
  const Model model;
  const LoadedWeights loaded =
      load_into(model, {{"embed.weight", at::ones({2, 3})}, {"extra", at::ones({1})}}, {.strict = false});
  EXPECT_THAT(loaded.loaded, ElementsAre("embed.weight"));
  EXPECT_THAT(loaded.missing, ElementsAre("h.0.weight", "calls"));
  EXPECT_THAT(loaded.unexpected, ElementsAre("extra"));
  EXPECT_TRUE(at::equal(model.embed, at::ones({2, 3})));
  EXPECT_THAT(refusal({{"embed.weight", at::ones({6})}}, {.strict = false}),
              HasSubstr("'embed.weight' has the shape"));
}

TEST(WeightLoading, RenamesByExactNamesAndByRulesInTheirOrder) {
  const Model model;
  const NamedTensors others = {{"module.transformer.layers.0.w", fitting()[1].tensor},
                               {"module.transformer.tokens", fitting()[0].tensor},
                               {"module.steps", fitting()[2].tensor},
                               {"module.transformer.layers.0.mask", at::ones({2, 2})}};
  load_into(model, others,
            {.rename = {{"module.steps", "calls"}},
             .rename_rules = {{"^module\\.", ""},
                              {"^.*\\.mask$", ""},
                              {"^transformer\\.", ""},
                              {"^layers\\.([0-9]+)\\.w$", "h.$1.weight"},
                              {"^tokens$", "embed.weight"}}});
  EXPECT_TRUE(at::equal(model.embed, fitting()[0].tensor));
  EXPECT_TRUE(at::equal(model.matrix, fitting()[1].tensor.to(at::kBFloat16)));
}

TEST(WeightLoading, RenamesThatGoWrongAreErrors) {
  EXPECT_THAT(
      refusal(replaced(fitting(), "other", at::ones({2, 3})), {.rename = {{"other", "embed.weight"}}}),
      HasSubstr("'embed.weight' and 'other' are both renamed to 'embed.weight'"));
  EXPECT_THAT(refusal(fitting(), {.rename = {{"typo", "embed.weight"}}}), HasSubstr("'typo'"));
  EXPECT_ERROR(UsageError, load_into(Model(), fitting(), {.rename_rules = {{"(", ""}}}),
               "'(' is no regular expression");
  EXPECT_ERROR(UsageError, load_into(Model(), fitting(), {.transpose = {"["}}),
               "'[' is no regular expression");
  EXPECT_THAT(refusal(replaced(fitting(), std::string(500'000, 'a'), at::ones({1})),
                      {.rename_rules = {{"(a|b)*c", ""}}}),
              HasSubstr("a name of 500000 bytes"));
}

TEST(WeightLoading, AnEmptyNewNameLeavesAWeightOut) {
  const NamedTensors more =
      replaced(replaced(fitting(), "h.0.mask", at::ones({9})), "h.1.mask", at::ones({9}));
  EXPECT_THAT(refusal(more), HasSubstr("has no 'h.0.mask', 'h.1.mask'"));
  EXPECT_EQ(load_into(Model(), more, {.rename_rules = {{"^.*\\.mask$", ""}}}).loaded.size(), 3u);
  EXPECT_EQ(load_into(Model(), more, {.rename = {{"h.0.mask", ""}, {"h.1.mask", ""}}}).loaded.size(), 3u);
}

TEST(WeightLoading, SaysWhichPrefixIsTheOnlyDifference) {
  NamedTensors wrapped;
  for (const auto& [name, tensor] : fitting()) wrapped.emplace_back("_orig_mod." + name, tensor);
  EXPECT_THAT(refusal(wrapped), HasSubstr("the file's names begin with '_orig_mod.'"));
  EXPECT_THAT(refusal({{"0.weight", fitting()[1].tensor}}), HasSubstr("the model's names begin with 'h.'"));
  EXPECT_THAT(refusal({{"other", fitting()[1].tensor}}), ::testing::Not(HasSubstr("begin with")));
}

TEST(WeightLoading, TransposesTheMatricesThatItsPatternsName) {
  const Model model;
  const NamedTensors turned = replaced(fitting(), "h.0.weight", at::arange(12, at::kFloat).view({4, 3}));
  EXPECT_THAT(refusal(turned), HasSubstr("'h.0.weight' has the shape [4, 3]"));
  load_into(model, turned, {.transpose = {"^h\\.[0-9]+\\.weight$"}});
  EXPECT_TRUE(at::equal(model.matrix, turned[1].tensor.t().to(at::kBFloat16)));
  EXPECT_THAT(refusal(fitting(), {.transpose = {"^h\\."}}),
              HasSubstr("[4, 3] in the file, transposed, [3, 4]"));
}

TEST(WeightLoading, OneNameOfASharedParameterIsEnough) {
  NamedTensors tied = fitting();
  tied[0].name = "head.weight";
  Model model;
  EXPECT_THAT(load_into(model, tied).loaded, ElementsAre("head.weight", "h.0.weight", "calls"));
  EXPECT_TRUE(at::equal(model.embed, fitting()[0].tensor));
  EXPECT_EQ(load_into(Model(), replaced(fitting(), "head.weight", fitting()[0].tensor.clone())).loaded.size(),
            3u);
  EXPECT_THAT(refusal(replaced(fitting(), "head.weight", at::ones({2, 3}))),
              HasSubstr("'embed.weight' and 'head.weight' differ in the file and are one parameter"));
}

TEST(WeightLoading, NumbersBecomeIntegersOnlyWithoutLoss) {
  const auto loads = [](const at::Tensor& calls) {
    return error_of<CheckpointError>([&] { load_into(Model(), replaced(fitting(), "calls", calls)); }) ==
           "no error";
  };
  EXPECT_TRUE(loads(at::full({}, 7, at::kInt)));
  EXPECT_TRUE(loads(at::full({}, true, at::kBool)));
  EXPECT_FALSE(loads(at::full({}, 7.25)));
  EXPECT_FALSE(loads(at::full({}, std::numeric_limits<double>::infinity())));
  // Codes of a quantized matrix are not its weights.
  EXPECT_THAT(refusal(replaced(fitting(), "h.0.weight", at::ones({3, 4}, at::kChar))),
              HasSubstr("has the dtype Char"));
}

TEST(WeightLoading, AParameterWithoutMemoryIsAnError) {
  Model model;
  model.embed = at::empty({2, 3}, at::TensorOptions().device(at::kMeta));
  const auto load = [&] {
    WeightLoading(std::make_shared<WeightsInMemory>(fitting()), model.targets(), {}).run();
  };
  EXPECT_THAT(error_of<CheckpointError>(load), HasSubstr("on the meta device"));
}

/// Is a file of torch.save with eight weights of 2 MB.
struct LargeFile {
  LargeFile() {
    Dict dict;
    for (int weight = 0; weight < 8; ++weight) {
      const std::string name = "w" + std::to_string(weight);
      dict.set(name, at::full({kNumel}, weight + 1.0));
      targets.push_back({{name}, at::zeros({kNumel})});
    }
    write_torch_archive(path(), dict);
  }
  std::filesystem::path path() const { return folder / "large.bin"; }

  static constexpr int64_t kNumel = 500'000;
  testing::TemporaryFolder folder;
  std::vector<WeightTarget> targets;
};

TEST(WeightLoading, HoldsOneWeightBesideTheModel) {
  const LargeFile file;
  const testing::AllocationCounter tensors;
  for (const bool verify_first : {true, false}) {
    const WeightLoading loading(open_weights(file.path()), file.targets, {.verify_first = verify_first});
    loading.run();
  }
  EXPECT_LT(tensors.peak_bytes(), 6'000'000);  // of 16 MB: one weight, or the piece that verifying reads
  EXPECT_EQ(file.targets[7].tensor.max().item<float>(), 8);
}

TEST(WeightLoading, ADamagedFileChangesNothing) {
  const LargeFile file;
  std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1'000'000, std::ios::end);  // in the last weight
  stream.put('\x55');
  stream.close();
  const auto load = [&](bool verify_first) {
    WeightLoading(open_weights(file.path()), file.targets, {.verify_first = verify_first}).run();
  };
  EXPECT_ERROR(CheckpointError, load(true), "large.bin", "do not match their checksum");
  EXPECT_EQ(file.targets[0].tensor.max().item<float>(), 0);
  EXPECT_ERROR(CheckpointError, load(false), "large.bin", "do not match their checksum");
  EXPECT_EQ(file.targets[0].tensor.max().item<float>(), 1);
}

}  // namespace
}  // namespace deepspeed::checkpoint
