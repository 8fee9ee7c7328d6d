#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/accelerate/launch/launch_command.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

#include "tests/support/environment_variables.h"
#include "tests/support/error_of.h"

namespace deepspeed::accelerate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ClusterConfig& file() {
  static const ClusterConfig config(parse_yaml(R"(distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, offload_param_device: cpu, gradient_clipping: 1.0, zero3_init_flag: true}
mixed_precision: bf16
num_processes: 4
)",
                                               "a.yaml"));
  return config;
}

LaunchSettings settings_of(const std::vector<std::string>& words, const ClusterConfig* config = nullptr) {
  return merge_settings(parse_launch(words).flags, config, 2);
}

TEST(Launch, LetsAFlagWinOverTheFile) {
  const LaunchSettings settings =
      settings_of({"--zero_stage=2", "--num-processes", "8", "prog", "--zero_stage", "1"}, &file());
  EXPECT_TRUE(settings.use_deepspeed);
  EXPECT_EQ(settings.num_processes, 8);
  EXPECT_EQ(settings.deepspeed.at("zero_stage"), 2);
  EXPECT_EQ(settings.deepspeed.at("offload_param_device"), "cpu");
  EXPECT_EQ(settings.mixed_precision, "bf16");
  EXPECT_THAT(settings.program_args, ElementsAre("--zero_stage", "1"));
  EXPECT_THAT(settings.fields_of_file, ElementsAre("zero_stage", "offload_param_device", "gradient_clipping",
                                                   "zero3_init_flag", "mixed_precision"));
}

TEST(Launch, SetsTheVariablesOfAccelerate) {
  const auto variables =
      launch_variables(settings_of({"--gradient_accumulation_steps", "2", "prog"}, &file()), {});
  EXPECT_EQ(variables.at("ACCELERATE_USE_DEEPSPEED"), "true");
  EXPECT_EQ(variables.at("ACCELERATE_MIXED_PRECISION"), "bf16");
  EXPECT_EQ(variables.at("ACCELERATE_DEEPSPEED_ZERO_STAGE"), "3");
  EXPECT_EQ(variables.at("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"), "cpu");
  EXPECT_EQ(variables.at("ACCELERATE_GRADIENT_CLIPPING"), "1.0");
  EXPECT_EQ(variables.at("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"), "2");
  EXPECT_EQ(variables.at("ACCELERATE_DEEPSPEED_ZERO3_INIT"), "true");
  EXPECT_EQ(variables.at("ACCELERATE_CONFIG_DS_FIELDS"),
            "zero_stage,offload_param_device,gradient_clipping,zero3_init_flag,mixed_precision");
  EXPECT_FALSE(variables.contains("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"));
}

TEST(Launch, StartsOneMachineByTheLauncher) {
  EXPECT_THAT(launcher_words(settings_of({"--main_process_port", "3000", "prog", "-x"}, &file())),
              ElementsAre("--no_local_rank", "--num_procs", "4", "--master_port", "3000", "prog", "-x"));
  EXPECT_THAT(launcher_words(settings_of({"--use_deepspeed", "-m", "mod"})),
              ElementsAre("--no_local_rank", "--num_procs", "2", "--module", "mod"));
}

TEST(Launch, StartsSeveralMachinesByTheLauncherThatIsNamed) {
  EXPECT_THAT(launcher_words(settings_of({"--num_machines", "2", "--deepspeed_hostfile", "h",
                                          "--main_process_ip", "10.0.0.1", "--deepspeed_inclusion_filter",
                                          "a@b", "--deepspeed_multinode_launcher", "openmpi", "prog"},
                                         &file())),
              ElementsAre("--no_local_rank", "--hostfile", "h", "--launcher", "openmpi", "--include", "a@b",
                          "--master_addr", "10.0.0.1", "prog"));
  const auto words =
      launcher_words(settings_of({"--num_machines", "2", "--machine_rank", "1", "--main_process_ip",
                                  "10.0.0.1", "--deepspeed_multinode_launcher", "standard", "prog"},
                                 &file()));
  ASSERT_EQ(words.size(), 9u);
  EXPECT_EQ(*decode_base64(words[2]), R"({"machine-0":[0,1],"machine-1":[0,1]})");
  EXPECT_EQ(words[5], "1");
}

TEST(Launch, NamesTheFlagAtFault) {
  const auto error_of = [](const std::vector<std::string>& words, const ClusterConfig* config = nullptr) {
    return testing::error_of<Error>([&] { settings_of(words, config); });
  };
  EXPECT_THAT(error_of({"--cpu", "--use_deepspeed", "prog"}),
              HasSubstr("You can only use one of `--cpu`, `--multi_gpu`"));
  EXPECT_THAT(error_of({"--zero_stage", "x", "--use_deepspeed", "prog"}),
              HasSubstr("--zero_stage: got \"x\""));
  EXPECT_THAT(error_of({"--zero_stage", "4", "--use_deepspeed", "prog"}),
              HasSubstr("--zero_stage: got \"4\", expected one of 0, 1, 2, 3"));
  EXPECT_THAT(error_of({"--zero_stage", "1", "prog"}), HasSubstr("add --use_deepspeed"));
  EXPECT_THAT(error_of({"--num_processes", "3", "--num_machines", "2", "prog"}), HasSubstr("share evenly"));
  EXPECT_THAT(error_of({"--use_fsdp", "prog"}),
              HasSubstr("--use_fsdp: use --use_deepspeed with --zero_stage 3"));
  EXPECT_THAT(error_of({"--fsdp-version", "2", "prog"}), HasSubstr("--zero_stage 3"));
  EXPECT_THAT(error_of({"--nonsense", "prog"}), HasSubstr("unknown flag '--nonsense'"));
  EXPECT_THAT(error_of({"--mixed_precision", "fp32", "prog"}), HasSubstr("fp32"));
  EXPECT_THAT(error_of({}), HasSubstr("no PROGRAM given"));
  EXPECT_THAT(error_of({"--module", "--no_python", "prog"}),
              HasSubstr("--module and --no_python cannot be used together"));
  EXPECT_THAT(error_of({"--offload_optimizer_device", "nvme", "prog"}, &file()),
              HasSubstr("offload_optimizer_device is nvme, and offload_optimizer_nvme_path is not given"));
  EXPECT_THAT(error_of({"--multi_gpu", "--num_processes", "1", "prog"}), HasSubstr("at least 2 processes"));
  EXPECT_THAT(testing::error_of<UsageError>([] {
                config_of(parse_launch({"--config_file", "none.yaml", "p"}).flags);
              }),
              HasSubstr("The passed configuration file `none.yaml` does not exist."));
}

TEST(Launch, HelpNamesEveryFlagOfDeepSpeed) {
  const std::string help = *parse_launch({"--help"}).text_to_print;
  for (const char* flag :
       {"--zero_stage", "--offload_param_nvme_path", "--deepspeed_multinode_launcher", "--num_processes"})
    EXPECT_THAT(help, HasSubstr(flag));
}

}  // namespace
}  // namespace deepspeed::accelerate
