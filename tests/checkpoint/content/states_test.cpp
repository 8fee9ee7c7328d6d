// Model and optimizer files survive a round trip from structs.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/places/places.h"
#include "tests/support/bf16_optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

Value through_a_file(const Value& value) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", value);
  return read_torch_archive(folder / "file.pt");
}

ModelStates some_model_states() {
  ModelStates states;
  states.states.module = {{"w", at::ones({2, 3}, at::kBFloat16)}, {"buffer", at::arange(2)}};
  states.states.buffer_names = {"buffer"};
  states.states.param_shapes = {{{"w", {2, 3}}}};
  states.states.frozen_param_shapes = {{"f", {2}}};
  states.states.frozen_param_fragments = {{"f", at::ones({2})}};
  states.states.shared_params = {{"alias", "w"}};
  states.lr_scheduler = Json{{"last_batch_iteration", 4}};
  states.skipped_steps = 1;
  states.global_steps = 5;
  states.global_samples = 40;
  states.dp_world_size = 2;
  states.ds_config = Json{{"train_batch_size", 8}, {"fp16", {{"enabled", false}}}, {"none", nullptr}};
  states.client_state = Dict{{"epoch", 3}, {"nested", List{Dict{{"a", 0.5}}}}};
  return states;
}

TEST(ModelStates, ComeBackFromAFile) {
  const ModelStates written = some_model_states();
  const ModelStates read = parse_model_states(through_a_file(build_model_states(written)));
  ASSERT_EQ(read.states.module.size(), 2u);
  EXPECT_EQ(read.states.module[0].name, "w");
  EXPECT_TRUE(same(read.states.module[0].tensor, written.states.module[0].tensor));
  EXPECT_EQ(read.states.buffer_names, written.states.buffer_names);
  EXPECT_EQ(read.states.param_shapes, written.states.param_shapes);
  EXPECT_EQ(read.states.frozen_param_shapes, written.states.frozen_param_shapes);
  EXPECT_EQ(read.states.frozen_param_fragments->at(0).name, "f");
  EXPECT_EQ(read.states.shared_params, written.states.shared_params);
  EXPECT_EQ(read.states.ds_version, "0.19.6");
  EXPECT_EQ(read.lr_scheduler, written.lr_scheduler);
  EXPECT_EQ(read.skipped_steps, 1);
  EXPECT_EQ(read.global_steps, 5);
  EXPECT_EQ(read.global_samples, 40);
  EXPECT_EQ(read.dp_world_size, 2);
  EXPECT_EQ(read.mp_world_size, 1);
  EXPECT_EQ(read.ds_config, written.ds_config);
  EXPECT_TRUE(same(read.client_state, written.client_state));
}

TEST(ModelStates, AClientKeyCannotShadowACounter) {
  ModelStates states = some_model_states();
  states.client_state.set("global_steps", 77);
  EXPECT_THAT([&] { build_model_states(states); },
              ::testing::ThrowsMessage<UsageError>(::testing::HasSubstr("'global_steps'")));
}

TEST(ModelStates, KeepObjectsOfTheClientAndRefuseThemAsTensors) {
  const Object object{"numpy._core.multiarray", "_reconstruct", {Global{"numpy", "ndarray"}}, nullptr};
  ModelStates states = some_model_states();
  states.client_state = Dict{{"array", object}, {"kind", Global{"numpy", "ndarray"}}, {"c", FrozenSet{{1}}}};
  const Value built = build_model_states(states);
  EXPECT_TRUE(same(parse_model_states(through_a_file(built)).client_state, states.client_state));

  Dict file = built.as_dict();
  Dict module = file.at("module").as_dict();
  module.set("norm._extra_state", object);
  file.set("module", module);
  EXPECT_EQ(parse_model_states(file).states.module.size(), 2U) << "a module's extra state is no tensor";
  module.set("w", object);
  file.set("module", module);
  EXPECT_ERROR(CheckpointError, parse_model_states(file),
               "the entry 'w' is a numpy._core.multiarray._reconstruct", "expected a tensor");
  Dict config = built.as_dict();
  config.set("ds_config", Dict{{"dtype", object}});
  EXPECT_ERROR(CheckpointError, parse_model_states(config), "_reconstruct at 'dtype' cannot be read as JSON");
}

TEST(ModelStates, AMissingKeyIsNamed) {
  EXPECT_THAT(
      [] {
        parse_model_states(Dict{{"module", Dict{}}});
      },
      ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("'buffer_names'")));
}

ZeroOptimizerStates some_optimizer_states() {
  ZeroOptimizerStates states;
  states.zero_stage = 2;
  states.loss_scaler.dynamic = true;
  states.loss_scaler.cur_scale = 4096;
  states.loss_scaler.cur_iter = 17;
  states.loss_scaler.last_overflow_iter = 3;
  states.loss_scaler.cur_hysteresis = 2;
  states.overflow = true;
  states.clip_grad = 1.0;
  PartitionStates group;
  group.fp32 = at::arange(8, at::kFloat).narrow(0, 0, 5);
  group.padding = 3;
  group.partition_count = 2;
  group.fragments = {{"w", {5, 0}}};
  group.tensors = {{"exp_avg", at::ones({8})}, {"exp_avg_sq", at::full({8}, 2.0)}};
  group.step = 9;
  group.options =
      Json{{"lr", 0.001}, {"betas", {0.9, 0.999}}, {"weight_decay", 0.0}, {"bias_correction", true}};
  states.groups = {group, PartitionStates{}};
  states.groups[1].fp32 = at::ones({0});
  states.groups[1].partition_count = 2;
  states.ds_config = Json{{"zero_optimization", {{"stage", 2}}}};
  return states;
}

TEST(OptimizerStates, ComeBackFromAFile) {
  const ZeroOptimizerStates written = some_optimizer_states();
  const ZeroOptimizerStates read = parse_optimizer_states(through_a_file(build_optimizer_states(written)));
  EXPECT_EQ(read.zero_stage, 2);
  EXPECT_TRUE(read.loss_scaler.dynamic);
  EXPECT_EQ(read.loss_scaler.cur_scale, 4096);
  EXPECT_EQ(read.loss_scaler.cur_iter, 17);
  EXPECT_EQ(read.loss_scaler.last_overflow_iter, 3);
  EXPECT_EQ(read.loss_scaler.cur_hysteresis, 2);
  EXPECT_TRUE(read.overflow);
  EXPECT_EQ(read.clip_grad, 1.0);
  ASSERT_EQ(read.groups.size(), 2u);
  const PartitionStates& group = read.groups[0];
  EXPECT_TRUE(same(group.fp32, written.groups[0].fp32));
  EXPECT_EQ(group.padding, 3);
  EXPECT_EQ(group.partition_count, 2);
  EXPECT_EQ(group.fragments, written.groups[0].fragments);
  EXPECT_EQ(group.step, 9);
  ASSERT_EQ(group.tensors.size(), 2u);
  EXPECT_EQ(group.tensors[1].first, "exp_avg_sq");
  EXPECT_TRUE(same(group.tensors[1].second, written.groups[0].tensors[1].second));
  EXPECT_EQ(group.options, written.groups[0].options);
  EXPECT_TRUE(read.groups[1].tensors.empty());
  EXPECT_FALSE(read.groups[1].step.has_value());
  EXPECT_EQ(read.ds_config, written.ds_config);
}

TEST(OptimizerStates, OfStage3ComeBackWithTheirSubGroups) {
  ZeroOptimizerStates written = some_optimizer_states();
  written.zero_stage = 3;
  written.groups.clear();
  for (int index = 0; index < 3; ++index) {
    PartitionStates& sub_group = written.groups.emplace_back();
    sub_group.param_group = index == 0 ? 0 : 1;
    sub_group.partition_count = 2;
    sub_group.fp32 = at::full({4}, 1.0 + index);
    sub_group.tensors = {{"exp_avg", at::full({4}, 10.0 + index)}};
    sub_group.step = 3;
    sub_group.options = Json{{"lr", sub_group.param_group == 0 ? 0.5 : 0.25}};
  }
  const Value file = through_a_file(build_optimizer_states(written));
  const Dict& zero = file.as_dict().at("optimizer_state_dict").as_dict();
  EXPECT_EQ(zero.at("fp32_flat_groups").as_sequence().size(), 3u);
  EXPECT_EQ(zero.at("partition_count").as_int(), 2);
  EXPECT_EQ(zero.at("optimizer_state_dict").as_dict().at("param_groups").as_sequence().size(), 2u);
  const ZeroOptimizerStates read = parse_optimizer_states(file);
  EXPECT_EQ(read.zero_stage, 3);
  EXPECT_TRUE(read.loss_scaler.dynamic);
  ASSERT_EQ(read.groups.size(), 3u);
  for (int index = 0; index < 3; ++index) {
    const PartitionStates& sub_group = read.groups[index];
    EXPECT_EQ(sub_group.param_group, index == 0 ? 0u : 1u);
    EXPECT_EQ(sub_group.partition_count, 2);
    EXPECT_EQ(sub_group.step, 3);
    EXPECT_EQ(sub_group.options, written.groups[index].options);
    EXPECT_TRUE(same(sub_group.fp32, written.groups[index].fp32));
    EXPECT_TRUE(same(sub_group.tensors.at(0).second, written.groups[index].tensors[0].second));
  }
}

TEST(OptimizerStates, OfDeepSpeedsBf16OptimizerKeepTheirPaddingAndHaveNoStage) {
  ZeroOptimizerStates written = some_optimizer_states();
  written.zero_stage = 1;
  EXPECT_FALSE(parse_optimizer_states(build_optimizer_states(written)).is_of_bf16_optimizer);
  const Value file = testing::in_bf16_optimizer_form(build_optimizer_states(written));
  const ZeroOptimizerStates read = parse_optimizer_states(through_a_file(file));
  EXPECT_TRUE(read.is_of_bf16_optimizer);
  EXPECT_EQ(read.zero_stage, 1);
  EXPECT_FALSE(read.loss_scaler.dynamic);
  EXPECT_EQ(read.loss_scaler.cur_scale, 1.0);
  const PartitionStates &found = read.groups.at(0), &expected = written.groups.at(0);
  EXPECT_EQ(found.padding, 0);
  ASSERT_EQ(found.fp32.numel(), expected.fp32.numel() + 3);
  EXPECT_TRUE(same(found.fp32.narrow(0, 0, expected.fp32.numel()), expected.fp32));
  EXPECT_EQ(found.step, 9);
  EXPECT_EQ(found.fragments, expected.fragments);
}

TEST(ModelStates, PassOverTheOneRanksPartOfDeepSpeedsBf16Optimizer) {
  ModelStates written = some_model_states();
  ZeroOptimizerStates optimizer = some_optimizer_states();
  optimizer.zero_stage = 1;
  const Value file = testing::in_bf16_optimizer_form(build_optimizer_states(optimizer));
  written.optimizer = file.as_dict().at("optimizer_state_dict");
  EXPECT_TRUE(parse_model_states(through_a_file(build_model_states(written))).optimizer.is_none());
}

TEST(OptimizerStates, ForeignFilesAreRefusedWithAReason) {
  EXPECT_THAT(
      [] {
        parse_optimizer_states(Dict{{"optimizer_state_dict", Dict{{"zero_stage", 4}}}});
      },
      ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("expected 1 to 3")));
  EXPECT_THAT(
      [] {
        parse_optimizer_states(Dict{{"optimizer_state_dict", Dict{}}});
      },
      ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("'zero_stage'")));
}

/// Checks the error for some_optimizer_states() with `value` under `key`.
template <class ErrorType>
::testing::AssertionResult refused_with(const std::string& key, const Value& value, const std::string& part) {
  Dict zero = build_optimizer_states(some_optimizer_states()).as_dict().at("optimizer_state_dict").as_dict();
  zero.set(key, value);
  return testing::throws_error<ErrorType>(
      [&] {
        parse_optimizer_states(Dict{{"optimizer_state_dict", zero}});
      },
      {part});
}

TEST(OptimizerStates, ThatContradictThemselvesAreRefusedWithAReason) {
  const Dict one_group{{"state", Dict{}}, {"param_groups", List{Dict{{"lr", 0.5}}}}};
  const Object no_stage{"deepspeed.runtime.zero.config", "ZeroStageEnum", {}, nullptr};
  EXPECT_TRUE(refused_with<CheckpointError>("zero_stage", no_stage, "'zero_stage' has no value"));
  EXPECT_TRUE(refused_with<CheckpointError>("partition_count", List{1},
                                            "'partition_count' has 1 entries, expected 2"));
  EXPECT_TRUE(refused_with<CheckpointError>(
      "partition_count", List{2, 0}, "group 1 has a partition of 1 dimensions and a partition_count of 0"));
  EXPECT_TRUE(refused_with<CheckpointError>("base_optimizer_state", one_group,
                                            "param_groups of 1 partitions, expected 2"));
  EXPECT_TRUE(refused_with<NotSupportedError>("base_optimizer_state", List{}, "elastic_checkpoint"));
  EXPECT_TRUE(refused_with<CheckpointError>("param_slice_mappings", List{Dict{}},
                                            "'param_slice_mappings' misses groups"));
  EXPECT_TRUE(refused_with<CheckpointError>("param_slice_mappings", List{Dict{{"w", 3}}, Dict{}},
                                            "the fragment of 'w' is a int"));
  EXPECT_TRUE(
      refused_with<CheckpointError>("loss_scaler", 3, "the loss scaler is a int, expected an object of"));
}

TEST(OptimizerStates, ReadsTheObjectsOfAFileThatPythonWrote) {
  const Value value =
      read_torch_archive((testing::source_folder() / "tests/golden/torch_archive/optimizer.pt").string());
  Dict zero = value.as_dict();
  zero.set("partition_count", List{1});
  zero.set("base_optimizer_state", Dict{{"state", Dict{}}, {"param_groups", List{Dict{{"lr", 0.5}}}}});
  const ZeroOptimizerStates states = parse_optimizer_states(Dict{{"optimizer_state_dict", zero}});
  EXPECT_EQ(states.zero_stage, 2);
  EXPECT_EQ(states.loss_scaler.cur_scale, 1.0);
  EXPECT_EQ(states.groups[0].fp32.numel(), 5);
  EXPECT_EQ(states.groups[0].fragments[0].second, (FragmentAddress{5, 2}));
}

TEST(OptimizerStates, TakeAStageThatPython3112PickledByItsName) {
  constexpr const char* kModule = "deepspeed.runtime.zero.config";
  for (const auto& [number, member] : {std::pair(1, "optimizer_states"), std::pair(2, "gradients")}) {
    Dict zero =
        build_optimizer_states(some_optimizer_states()).as_dict().at("optimizer_state_dict").as_dict();
    zero.set("zero_stage", Global{kModule, std::string("ZeroStageEnum.") + member});
    EXPECT_EQ(parse_optimizer_states(through_a_file(Dict{{"optimizer_state_dict", zero}})).zero_stage,
              number);
  }
  EXPECT_TRUE(refused_with<CheckpointError>("zero_stage", Global{kModule, "ZeroStageEnum.weights"},
                                            "fp32_flat_groups"));
  EXPECT_TRUE(refused_with<CheckpointError>("zero_stage", Global{kModule, "ZeroStageEnum.none"},
                                            "ZeroStageEnum.none, expected a member of ZeroStageEnum"));
}

TEST(JsonValue, ComesBackUnchanged) {
  const Json json = Json::parse(R"({"b": [1, 2.5, "x", null, true, {"z": {}}], "a": -9007199254740993})");
  EXPECT_EQ(json_of_value(value_of_json(json)), json);
  EXPECT_EQ(json_of_value(at::full({}, 7, at::kLong)), Json(7));
  EXPECT_EQ(json_of_value(at::full({}, 0.5)), Json(0.5));
  EXPECT_ERROR(CheckpointError, json_of_value(at::ones({2})), "a tensor cannot be read as JSON");
  const Value inside = Dict{{"betas", Tuple{{0.9, at::ones({2})}}}};
  EXPECT_ERROR(CheckpointError, json_of_value(inside), "a tensor at 'betas.1'", "expected numbers");
}

TEST(Layout, NamesAreDeepSpeeds) {
  EXPECT_EQ(model_states_path("d", "t"), "d/t/mp_rank_00_model_states.pt");
  EXPECT_EQ(optim_states_path("d", "t", 3), "d/t/zero_pp_rank_3_mp_rank_00_optim_states.pt");
  EXPECT_EQ(optim_states_path("d", "t", 12, 1, true), "d/t/bf16_zero_pp_rank_12_mp_rank_01_optim_states.pt");
  EXPECT_EQ(rng_states_path("d", "t", 1), "d/t/rng_states_rank_1_mp_rank_00.pt");
  EXPECT_EQ(default_tag(7), "global_step7");
  EXPECT_EQ(weights_name(false, 0, 3), "pytorch_model-00001-of-00003.bin");
}

TEST(Layout, LatestComesBackAndAnEmptyOneIsAnError) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(read_latest(folder.path()), std::nullopt);
  write_latest(folder.path(), "global_step3");
  write_latest(folder.path(), "global_step4");
  EXPECT_EQ(read_latest(folder.path()), "global_step4");
  write_latest(folder.path(), "\n");
  EXPECT_THAT(testing::error_of<CheckpointError>([&] { read_latest(folder.path()); }),
              ::testing::AllOf(::testing::HasSubstr("is empty"), ::testing::HasSubstr("pass the tag")));
  write_latest(folder.path(), "global\x01\x02");
  EXPECT_THAT(testing::error_of<CheckpointError>([&] { read_latest(folder.path()); }),
              ::testing::AllOf(::testing::HasSubstr("8 bytes that are no text"),
                               ::testing::Not(::testing::HasSubstr("\x01"))));
}

TEST(Layout, LatestThatIsAFolderIsSaidToBeOne) {
  const testing::TemporaryFolder folder;
  folder.write("latest/x", "");
  EXPECT_THAT(testing::error_of<CheckpointError>([&] { read_latest(folder.path()); }),
              ::testing::AllOf(::testing::HasSubstr("is a folder"), ::testing::HasSubstr("rename it"),
                               ::testing::HasSubstr("pass the tag")));
}

}  // namespace
}  // namespace deepspeed::checkpoint
