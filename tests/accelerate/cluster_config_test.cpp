#include "deepspeed/accelerate/config/cluster_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/environment_variables.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::accelerate {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ClusterConfig config_of(const std::string& text) { return ClusterConfig(parse_yaml(text, "a.yaml")); }
std::string error_of(const std::string& text) {
  return testing::error_of<ConfigError>([&] { config_of(text); });
}

constexpr const char* kOfGuide = R"(compute_environment: LOCAL_MACHINE
deepspeed_config:
 gradient_accumulation_steps: 1
 gradient_clipping: 1.0
 offload_optimizer_device: none
 offload_param_device: none
 zero3_init_flag: true
 zero_stage: 2
distributed_type: DEEPSPEED
fsdp_config: {}
machine_rank: 0
main_process_ip: null
main_process_port: null
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 2
use_cpu: false
)";

TEST(ClusterConfig, FillsInTheDefaultsOfAccelerate) {
  const ClusterConfig config = config_of(kOfGuide);
  EXPECT_EQ(config.int_of("num_processes"), 2);
  EXPECT_EQ(config.at("deepspeed_config")["zero_stage"], 2);
  EXPECT_EQ(config.text_of("rdzv_backend"), "static");
  EXPECT_FALSE(config.flag_of("same_network"));
  EXPECT_FALSE(config.int_of("main_process_port").has_value());
  EXPECT_EQ(config_of("distributed_type: 'NO'").int_of("num_processes"), 1);
  EXPECT_EQ(config_of("distributed_type: DEEPSPEED").int_of("num_processes"), -1);
}

TEST(ClusterConfig, ConvertsOlderShapes) {
  EXPECT_EQ(config_of("distributed_type: MULTI_GPU\nfp16: true\n").text_of("mixed_precision"), "fp16");
  EXPECT_FALSE(config_of("distributed_type: MULTI_GPU\nfp16: true\n").values.contains("fp16"));
  EXPECT_EQ(config_of("distributed_type: MULTI_GPU\nmixed_precision: no\n").text_of("mixed_precision"), "no");
  EXPECT_EQ(config_of("distributed_type: MULTI_GPU\ndynamo_backend: 'NO'\n").at("dynamo_config"),
            Json::object());
  EXPECT_EQ(config_of("distributed_type: MULTI_GPU\ndynamo_backend: INDUCTOR\n").at("dynamo_config"),
            (Json{{"dynamo_backend", "INDUCTOR"}}));
}

TEST(ClusterConfig, WritesSortedKeysAndKeepsUnknownOnes) {
  const std::string text = config_of(std::string(kOfGuide) + "zebra: 1\nmine: {a: 'no'}\n").to_yaml();
  EXPECT_THAT(text, HasSubstr("mine:\n  a: 'no'\n"));
  EXPECT_THAT(text, HasSubstr("zebra: 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("fsdp_config")));
  EXPECT_THAT(text, Not(HasSubstr("main_process_ip")));
  EXPECT_LT(text.find("compute_environment"), text.find("deepspeed_config"));
  EXPECT_EQ(config_of(text).values["zebra"], 1);
}

TEST(ClusterConfig, WarnsOfKeysWithoutAMeaning) {
  ::testing::internal::CaptureStderr();
  config_of("distributed_type: DEEPSPEED\nnum_proceses: 2\ndeepspeed_config:\n  zero_stages: 3\n");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("a.yaml line 2: num_proceses is not known, and has no effect"));
  EXPECT_THAT(text, HasSubstr("num_processes"));
  EXPECT_THAT(text, HasSubstr("a.yaml line 4: deepspeed_config.zero_stages"));
  EXPECT_THAT(text, HasSubstr("zero_stage"));
}

TEST(ClusterConfig, NamesFileLineAndKeyOfAFault) {
  const struct {
    const char* text;
    std::vector<const char*> parts;
  } rows[] = {
      {"distributed_type: FSDP\n",
       {"a.yaml line 1: distributed_type: got \"FSDP\"", "use DEEPSPEED", "or MULTI_GPU"}},
      {"distributed_type: DEEPSPEED\nnum_processes: two\n",
       {"a.yaml line 2: num_processes: got \"two\", expected a whole number"}},
      {"distributed_type: DEEPSPEED\nuse_cpu: maybe\n", {"a.yaml line 2: use_cpu", "expected true or false"}},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: [1]\n",
       {"a.yaml line 3: deepspeed_config.zero_stage: got [1]"}},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 4\n",
       {"a.yaml line 3: deepspeed_config.zero_stage: got 4, expected one of 0, 1, 2, 3"}},
      {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_param_device: gpu\n",
       {"a.yaml line 3: deepspeed_config.offload_param_device", "expected one of none, cpu, nvme"}},
      {"distributed_type: DEEPSPEED\ndeepspeed_config: 3\n",
       {"a.yaml line 2: deepspeed_config: got 3, expected a map"}},
      {"distributed_type: DEEPSPEED\nmixed_precision: fp32\n",
       {"a.yaml line 2: mixed_precision", "no, fp16, bf16, fp8"}},
      {"num_processes: 2\n", {"a.yaml", "A `distributed_type` must be specified in the config file."}},
      {"compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n",
       {"a.yaml line 1: compute_environment"}},
      {"- 1\n", {"a.yaml: got [1], expected the keys"}},
  };
  for (const auto& row : rows) {
    for (const char* part : row.parts) EXPECT_THAT(error_of(row.text), HasSubstr(part)) << row.text;
  }
}

TEST(ClusterConfig, LiesInTheCacheFolderOfHuggingFace) {
  const testing::TemporaryFolder folder;
  {
    const testing::EnvironmentVariables set(
        testing::EnvironmentVariables::Values{{"HF_HOME", folder.string()}});
    EXPECT_EQ(default_config_file(), folder / "accelerate/default_config.yaml");
    config_of(kOfGuide).to_file(default_config_file());
    EXPECT_EQ(ClusterConfig::from_file(default_config_file()).text_of("mixed_precision"), "fp16");
  }
  const auto json = folder / "a.json";
  config_of(kOfGuide).to_file(json);
  EXPECT_EQ(ClusterConfig::from_file(json).at("deepspeed_config")["gradient_clipping"], 1.0);
  const testing::EnvironmentVariables set({{"HF_HOME", ""}, {"XDG_CACHE_HOME", "/x"}});
  EXPECT_EQ(default_config_file(), "/x/huggingface/accelerate/default_config.yaml");
}

}  // namespace
}  // namespace deepspeed::accelerate
