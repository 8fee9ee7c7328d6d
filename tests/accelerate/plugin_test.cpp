// DeepSpeedPlugin against Accelerate's rules. The expected configs are those of Accelerate 1.15 for the same input.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"
#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/error.h"

#include "tests/support/environment_variables.h"
#include "tests/support/error_of.h"

namespace deepspeed::accelerate {
namespace {

using testing::EnvironmentVariables;
using ::testing::HasSubstr;

const Json kConfigOfGuide = Json::parse(R"({
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": "auto", "stage3_gather_16bit_weights_on_model_save": "auto",
                        "offload_optimizer": {"device": "auto"}, "offload_param": {"device": "auto"}},
  "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto", "steps_per_print": 2000000})");

TEST(PythonText, PrintsValuesAsPythonDoes) {
  const Json value = {
      {"a", true}, {"b", nullptr}, {"c", 1.0},      {"d", 2e8},       {"e", 1e-5},
      {"f", 1e16}, {"g", "it's"},  {"h", "a\"b'c"}, {"i", 0.1},       {"j", Json::array({1, "x\n"})},
      {"k", 5},    {"l", -0.0},    {"m", 1e15},     {"n", 123456.789}};
  EXPECT_EQ(
      python_repr(value),
      R"({'a': True, 'b': None, 'c': 1.0, 'd': 200000000.0, 'e': 1e-05, 'f': 1e+16, 'g': "it's", )"
      R"('h': 'a"b\'c', 'i': 0.1, 'j': [1, 'x\n'], 'k': 5, 'l': -0.0, 'm': 1000000000000000.0, 'n': 123456.789})");
  EXPECT_EQ(python_repr(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(python_str("text"), "text");
}

TEST(DeepSpeedPlugin, BuildsAConfigFromItsArguments) {
  const EnvironmentVariables none({});
  DeepSpeedPlugin plugin({.gradient_accumulation_steps = 2,
                          .gradient_clipping = 1.0,
                          .zero_stage = 3,
                          .offload_optimizer_device = "nvme",
                          .offload_param_device = "cpu",
                          .offload_optimizer_nvme_path = "/disk"});
  plugin.set_mixed_precision("bf16");
  EXPECT_EQ(
      python_repr(plugin.deepspeed_config()),
      "{'train_batch_size': 'auto', 'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': "
      "2, "
      "'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'nvme', 'nvme_path': '/disk'}, "
      "'offload_param': {'device': 'cpu', 'nvme_path': None}, "
      "'stage3_gather_16bit_weights_on_model_save': False}, 'gradient_clipping': 1.0, 'steps_per_print': "
      "inf, "
      "'bf16': {'enabled': True}, 'fp16': {'enabled': False}}");
  EXPECT_TRUE(plugin.is_zero3_init_enabled());
}

TEST(DeepSpeedPlugin, TakesVariablesForArgumentsThatAreNotGiven) {
  const EnvironmentVariables set({{"ACCELERATE_DEEPSPEED_ZERO_STAGE", "1"},
                                  {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"},
                                  {"ACCELERATE_GRADIENT_CLIPPING", "0.5"},
                                  {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu"}});
  const DeepSpeedPlugin plugin({.gradient_clipping = 2.0});
  EXPECT_EQ(plugin.zero_stage(), 1);
  EXPECT_EQ(plugin.gradient_accumulation_steps(), 4);
  EXPECT_EQ(plugin.gradient_clipping(), 2.0);
  EXPECT_EQ(plugin.get_value("zero_optimization.offload_optimizer.device"), "cpu");
}

TEST(DeepSpeedPlugin, LeavesClippingOutIfItIsZero) {
  const EnvironmentVariables none({});
  EXPECT_FALSE(DeepSpeedPlugin({.gradient_clipping = 0.0}).deepspeed_config().contains("gradient_clipping"));
  EXPECT_EQ(DeepSpeedPlugin().deepspeed_config()["gradient_clipping"], "auto");
}

// The guide's scenario 3.
TEST(DeepSpeedPlugin, FillsTheAutoValuesOfAConfig) {
  const EnvironmentVariables set({{"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
                                  {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "5"},
                                  {"ACCELERATE_GRADIENT_CLIPPING", "1.0"},
                                  {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "cpu"},
                                  {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "nvme"},
                                  {"ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true"}});
  DeepSpeedPlugin plugin({.hf_ds_config = HfDeepSpeedConfig(kConfigOfGuide)});
  plugin.set_mixed_precision("fp16");
  EXPECT_EQ(
      python_repr(plugin.deepspeed_config()),
      "{'bf16': {'enabled': False}, 'zero_optimization': {'stage': 3, "
      "'stage3_gather_16bit_weights_on_model_save': True, 'offload_optimizer': {'device': 'nvme'}, "
      "'offload_param': {'device': 'cpu'}}, 'gradient_clipping': 1.0, 'train_batch_size': 'auto', "
      "'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': 5, 'steps_per_print': inf, "
      "'fp16': {'enabled': True, 'auto_cast': True}}");
  EXPECT_EQ(plugin.mixed_precision(), "fp16");
}

TEST(DeepSpeedPlugin, LetsTheConfigWinOverArguments) {
  const EnvironmentVariables none({});
  const DeepSpeedPlugin plugin(
      {.hf_ds_config = HfDeepSpeedConfig(Json{{"zero_optimization", {{"stage", 1}}}}),
       .gradient_accumulation_steps = 7,
       .zero_stage = 3});
  EXPECT_EQ(plugin.zero_stage(), 1);
  EXPECT_EQ(plugin.gradient_accumulation_steps(), 1);  // a config without the key means 1
}

// The guide's scenario 1.
TEST(DeepSpeedPlugin, RefusesAConfigBesideKeysOfTheYaml) {
  const EnvironmentVariables set(EnvironmentVariables::Values{
      {"ACCELERATE_CONFIG_DS_FIELDS", "zero3_init_flag,zero_stage,deepspeed_config_file"}});
  const auto text = testing::error_of<ConfigError>(
      [] { DeepSpeedPlugin({.hf_ds_config = HfDeepSpeedConfig(kConfigOfGuide)}); });
  EXPECT_THAT(
      text,
      HasSubstr(
          "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: "
          "['gradient_accumulation_steps', 'gradient_clipping', 'zero_stage', 'offload_optimizer_device', "
          "'offload_param_device', 'offload_param_nvme_path', 'offload_optimizer_nvme_path', "
          "'zero3_save_16bit_model', 'mixed_precision'].\n"));
  const EnvironmentVariables harmless(
      EnvironmentVariables::Values{{"ACCELERATE_CONFIG_DS_FIELDS", "zero3_init_flag,deepspeed_config_file"}});
  EXPECT_NO_THROW(DeepSpeedPlugin({.hf_ds_config = HfDeepSpeedConfig(kConfigOfGuide)}));
}

TEST(DeepSpeedPlugin, NamesWhatIsMissingOrContradicts) {
  const EnvironmentVariables none({});
  const auto error_of = [](const std::function<void()>& work) {
    return testing::error_of<ConfigError>(work);
  };
  EXPECT_THAT(error_of([] {
                DeepSpeedPlugin({.hf_ds_config = HfDeepSpeedConfig(Json{{"train_batch_size", 1}})});
              }),
              HasSubstr("Please specify the ZeRO optimization config in the DeepSpeed config."));
  EXPECT_THAT(error_of([] { HfDeepSpeedConfig("nowhere.json"); }), HasSubstr("Received: nowhere.json"));
  const Json bf16 = {{"zero_optimization", {{"stage", 2}}}, {"bf16", {{"enabled", true}}}};
  EXPECT_THAT(error_of([&] {
                DeepSpeedPlugin({.hf_ds_config = HfDeepSpeedConfig(bf16)}).set_mixed_precision("fp16");
              }),
              HasSubstr("`--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed "
                        "config file."));
  const Json betas = {{"zero_optimization", {{"stage", 2}}},
                      {"optimizer", {{"params", {{"betas", "auto"}}}}}};
  EXPECT_THAT(
      error_of([&] {
        DeepSpeedPlugin({.hf_ds_config = HfDeepSpeedConfig(betas)}).deepspeed_config_process({}, false);
      }),
      HasSubstr("`optimizer.params.betas` not found in kwargs. Please specify `optimizer.params.betas` "
                "without `auto`"));
  const EnvironmentVariables wrong(
      EnvironmentVariables::Values{{"ACCELERATE_DEEPSPEED_ZERO_STAGE", "three"}});
  EXPECT_THAT(error_of([] { DeepSpeedPlugin(); }),
              HasSubstr("ACCELERATE_DEEPSPEED_ZERO_STAGE: got \"three\""));
}

TEST(DeepSpeedPlugin, ListsAllValuesThatDiffer) {
  const EnvironmentVariables none({});
  const Json config = {
      {"zero_optimization", {{"stage", 2}}}, {"gradient_clipping", 1.0}, {"train_batch_size", 8}};
  DeepSpeedPlugin plugin({.hf_ds_config = HfDeepSpeedConfig(config)});
  const auto text = testing::error_of<ConfigError>([&] {
    plugin.deepspeed_config_process({{"gradient_clipping", 0.5}, {"train_batch_size", 16}});
  });
  EXPECT_THAT(text, HasSubstr("- ds gradient_clipping=1.0 vs arg gradient_clipping=0.5\n"
                              "- ds train_batch_size=8 vs arg train_batch_size=16\nThe easiest method"));
}

TEST(DeepSpeedPlugin, GivesInitAConfigWithoutOpenBatchSizes) {
  const EnvironmentVariables none({});
  const Json config = DeepSpeedPlugin({.zero_stage = 3}).config_for_init();
  EXPECT_EQ(config["gradient_accumulation_steps"], 1);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"], 1);
  EXPECT_FALSE(config.contains("train_batch_size"));
  EXPECT_FALSE(config.contains("gradient_clipping"));
}

}  // namespace
}  // namespace deepspeed::accelerate
