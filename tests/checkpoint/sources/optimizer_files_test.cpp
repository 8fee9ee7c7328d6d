// Finds parameters in the optimizer's files: in partitions, and inside a model file.
#include "deepspeed/checkpoint/sources/optimizer_files.h"

#include <filesystem>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/support/bf16_optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

// "b" before "a", as round_robin_gradients may order them: 10 elements on two ranks, each with 6 including
// padding.
using Groups = std::vector<NamedShapes>;
const NamedShapes kPlaced = {{"b", {2, 3}}, {"a", {4}}};

void write_two_ranks(const std::filesystem::path& dir, int64_t padding_of_second = 2,
                     const std::map<std::string, double>& numbers = {}) {
  std::filesystem::create_directories(dir / "tag");
  for (const int rank : {0, 1}) {
    ZeroOptimizerStates states;
    PartitionStates& group = states.groups.emplace_back();
    const int64_t begin = rank * 6, end = rank == 0 ? 6 : 10;
    group.fp32 = at::arange(begin, end, at::kFloat);
    group.padding = rank == 0 ? 0 : padding_of_second;
    group.partition_count = 2;
    group.tensors = {{"exp_avg", at::zeros({6})}};
    group.tensors[0].second.narrow(0, 0, end - begin).copy_(group.fp32 * 10);
    if (!numbers.empty()) group.numbers["last_factor"] = numbers;
    // These are DeepSpeed's, in the model's order, and not where the data lies.
    group.fragments = {{"a", {4, 0}}, {"b", {rank == 0 ? 2 : 4, rank == 0 ? 4 : 0}}};
    write_torch_archive(optim_states_path(dir, "tag", rank), build_optimizer_states(states));
  }
}

at::Tensor whole(const OptimizerFiles& files, const std::string& name, const std::string& state) {
  const at::Tensor values = at::full({files.numel(name, state)}, -1.0);
  files.read(name, state, {0, values.numel()}, values);
  return values;
}

TEST(OptimizerFilesPlaces, FollowTheShapesWhereTheMappingsOfTheFileAreWrong) {
  const testing::TemporaryFolder folder;
  write_two_ranks(folder.path());
  const auto files =
      OptimizerFiles::of_partitions(folder.path(), "tag", TagArchives(folder / "tag"), Groups{kPlaced});
  EXPECT_TRUE(at::equal(whole(files, "b", kMasterState), at::arange(0, 6, at::kFloat)));
  EXPECT_TRUE(at::equal(whole(files, "a", kMasterState), at::arange(6, 10, at::kFloat)));
  EXPECT_TRUE(at::equal(whole(files, "a", "exp_avg"), at::arange(6, 10, at::kFloat) * 10));
}

TEST(OptimizerFilesPlaces, AreRefusedWhereTheFilesDoNotFitTheShapes) {
  const testing::TemporaryFolder folder;
  write_two_ranks(folder.path());
  const auto error = [&](const std::optional<Groups>& shapes) {
    return error_of<CheckpointError>(
        [&] { OptimizerFiles::of_partitions(folder.path(), "tag", TagArchives(folder / "tag"), shapes); });
  };
  EXPECT_THAT(error(std::nullopt), HasSubstr("'param_shapes'"));
  EXPECT_THAT(error(Groups{kPlaced, kPlaced}), AllOf(HasSubstr("1 parameter groups"), HasSubstr("has 2")));
  EXPECT_THAT(error(Groups{NamedShapes{{"b", {2, 3}}, {"a", {5}}}}),
              AllOf(HasSubstr("4 elements of 'a'"), HasSubstr("has 5")));
  EXPECT_THAT(error(Groups{NamedShapes{{"b", {2, 3}}}}), AllOf(HasSubstr("6 elements"), HasSubstr("12")));
  write_two_ranks(folder.path(), 3);
  EXPECT_THAT(error(Groups{kPlaced}), AllOf(HasSubstr("zero_pp_rank_1"), HasSubstr("7 elements")));
}

// 7 elements of "b" on both ranks and 3 of "a", with padding at the end.
void write_bf16_optimizer(const std::filesystem::path& dir, int64_t begin_of_a = 1) {
  write_two_ranks(dir);
  for (const int rank : {0, 1}) {
    const auto path = optim_states_path(dir, "tag", rank);
    ZeroOptimizerStates states = parse_optimizer_states(read_torch_archive(path));
    using Fragments = std::vector<std::pair<std::string, FragmentAddress>>;
    states.groups[0].fragments =
        rank == 0 ? Fragments{{"b", {6, 0}}} : Fragments{{"b", {1, 0}}, {"a", {3, begin_of_a}}};
    write_torch_archive(path, testing::in_bf16_optimizer_form(build_optimizer_states(states)));
  }
}

TEST(OptimizerFilesPlaces, AreSaidByTheFilesOfDeepSpeedsBf16Optimizer) {
  const testing::TemporaryFolder folder;
  write_bf16_optimizer(folder.path());
  for (const std::optional<Groups>& shapes : {std::optional<Groups>(), {Groups{{{"b", {7}}, {"a", {3}}}}}}) {
    const auto files =
        OptimizerFiles::of_partitions(folder.path(), "tag", TagArchives(folder / "tag"), shapes);
    EXPECT_TRUE(at::equal(whole(files, "b", kMasterState), at::arange(0, 7, at::kFloat)));
    EXPECT_TRUE(at::equal(whole(files, "a", kMasterState), at::arange(7, 10, at::kFloat)));
    EXPECT_TRUE(at::equal(whole(files, "a", "exp_avg"), at::arange(7, 10, at::kFloat) * 10));
  }
  write_bf16_optimizer(folder.path(), /*begin_of_a=*/2);
  EXPECT_ERROR(CheckpointError,
               OptimizerFiles::of_partitions(folder.path(), "tag", TagArchives(folder / "tag"), std::nullopt),
               "zero_pp_rank_1", "'a'", "from 2, expected it at 1");
}

OptimizerFiles of_plain(const std::filesystem::path& dir, const PlainOptimizerStates& states,
                        const NamedShapes& params) {
  write_torch_archive(dir / "model.pt", build_plain_optimizer(states));
  const auto file = std::make_shared<DeferredArchive>(dir / "model.pt");
  return OptimizerFiles::of_model_file(file, file->value(), {params});
}

TEST(PlainOptimizerFiles, HoldMastersFlatOrByParameter) {
  const testing::TemporaryFolder folder;
  const at::Tensor moments = at::arange(100, 110, at::kFloat), masters = at::arange(10, at::kFloat);
  const auto part = [](const at::Tensor& flat, size_t param) {
    return param == 0 ? flat.narrow(0, 0, 6).view({2, 3}) : flat.narrow(0, 6, 4);
  };
  for (const bool is_flat : {true, false}) {
    PlainOptimizerStates states;
    states.has_masters = true;
    PlainGroupStates& group = states.groups.emplace_back();
    group.names = {"b", "a"};
    if (is_flat) {
      group.params = {{{{"exp_avg", moments}}, 7}};
      group.fp32_flat = masters;
    } else {
      for (const size_t param : {0, 1}) {
        group.params.push_back({{{"exp_avg", part(moments, param)}}, 7});
        group.fp32.push_back(part(masters, param));
      }
    }
    const auto files = of_plain(folder.path(), states, kPlaced);
    EXPECT_TRUE(at::equal(whole(files, "b", kMasterState), at::arange(0, 6, at::kFloat)));
    EXPECT_TRUE(at::equal(whole(files, "a", kMasterState), at::arange(6, 10, at::kFloat)));
    EXPECT_TRUE(at::equal(whole(files, "a", "exp_avg"), at::arange(106, 110, at::kFloat)));
    EXPECT_EQ(files.groups()[0].step, 7);
    EXPECT_FALSE(files.loss_scaler());
    EXPECT_THAT(error_of<CheckpointError>([&] {
                  of_plain(folder.path(), states, {{"b", {2, 3}}, {"a", {3}}});
                }),
                HasSubstr(is_flat ? "has 10 elements" : "has 4 elements"));
  }
}

TEST(PlainOptimizerFiles, PassOverParametersThatWereNotTrained) {
  const testing::TemporaryFolder folder;
  PlainOptimizerStates states;
  PlainGroupStates& group = states.groups.emplace_back();
  group.params = {{{{"exp_avg", at::full({2, 3}, 1.0)}}, 2}, {{}, 0}, {{{"exp_avg", at::full({4}, 2.0)}}, 2}};
  const auto files = of_plain(folder.path(), states, kPlaced);
  EXPECT_TRUE(at::equal(whole(files, "b", "exp_avg"), at::full({6}, 1.0)));
  EXPECT_TRUE(at::equal(whole(files, "a", "exp_avg"), at::full({4}, 2.0)));
  group.params.pop_back();
  EXPECT_THAT(error_of<CheckpointError>([&] {
                of_plain(folder.path(), states, {{"b", {2, 3}}, {"c", {1}}, {"a", {4}}});
              }),
              HasSubstr("2 parameters"));
}

// DeepSpeed's 1-bit optimizers also save tensors of one rank, with other sizes, and discard them on load.
TEST(PlainOptimizerFiles, PassOverWhatIsOneRanksAndHoldNumbersOfParameters) {
  const testing::TemporaryFolder folder;
  PlainOptimizerStates states;
  PlainGroupStates& group = states.groups.emplace_back();
  for (const int64_t numel : {6, 4}) {
    ParamOptimizerState& param = group.params.emplace_back();
    param.step = 3;
    param.tensors = {{"exp_avg", at::full({numel}, double(numel))},
                     {"momentum_accumulator", at::zeros({numel})},
                     {"worker_error", at::zeros({16})},
                     {"server_error", at::zeros({8})}};
    param.numbers = {{"lamb_coeff_freeze", 0.25 * double(numel)}};
  }
  const auto files = of_plain(folder.path(), states, kPlaced);
  ASSERT_EQ(files.groups()[0].states.size(), 1U);
  EXPECT_EQ(files.groups()[0].states[0].first, "exp_avg");
  EXPECT_TRUE(at::equal(whole(files, "a", "exp_avg"), at::full({4}, 4.0)));
  const std::map<std::string, double> expected = {{"b", 1.5}, {"a", 1.0}};
  EXPECT_EQ(files.groups()[0].numbers.at("lamb_coeff_freeze"), expected);
}

TEST(OptimizerFilesOfPartitions, HoldNumbersOfParameters) {
  const testing::TemporaryFolder folder;
  const std::map<std::string, double> numbers = {{"b", 1.5}, {"a", 1.0}};
  write_two_ranks(folder.path(), 2, numbers);
  const auto files =
      OptimizerFiles::of_partitions(folder.path(), "tag", TagArchives(folder / "tag"), Groups{kPlaced});
  EXPECT_EQ(files.groups()[0].numbers.at("last_factor"), numbers);
}

}  // namespace
}  // namespace deepspeed::checkpoint
