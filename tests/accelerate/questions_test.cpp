#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/accelerate/questions/config_command.h"
#include "deepspeed/accelerate/questions/questionnaire.h"
#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::accelerate {
namespace {

using ::testing::HasSubstr;

/// Returns the config that a person's lines lead to, and what was asked.
std::pair<ClusterConfig, std::string> ask(const std::string& lines) {
  std::istringstream in(lines);
  std::ostringstream out;
  Asker asker(in, out);
  const ClusterConfig config = ask_for_config(asker);
  std::string left;
  EXPECT_FALSE(std::getline(in, left)) << "not asked for: " << left;
  return {config, out.str()};
}

ClusterConfig answered(Json answers) {
  Asker asker(std::move(answers));
  return ask_for_config(asker);
}

// The guide's scenario 2: machine, GPUs, machines, checks, DeepSpeed, a file, its path, zero::Init, experts, processes.
TEST(Questions, FollowTheOrderOfAccelerate) {
  const auto [config, asked] = ask("\nmulti-GPU\n\n\nyes\nyes\nds_config.json\nyes\n\n4\n");
  EXPECT_EQ(config.text_of("distributed_type"), "DEEPSPEED");
  EXPECT_EQ(config.at("deepspeed_config"),
            (Json{{"deepspeed_config_file", "ds_config.json"}, {"zero3_init_flag", true}}));
  EXPECT_EQ(config.int_of("num_processes"), 4);
  EXPECT_TRUE(config.at("mixed_precision").is_null());  // the file says it
}

TEST(Questions, AskForStageAndOffloadWithoutAFile) {
  const auto [config, asked] = ask("\n0\n\nyes\n\n3\ncpu\nnvme\n\n2\nyes\n\nyes\n\n\n2\nbf16\n");
  EXPECT_EQ(config.at("deepspeed_config"), (Json{{"zero_stage", 3},
                                                 {"offload_optimizer_device", "cpu"},
                                                 {"offload_param_device", "nvme"},
                                                 {"offload_param_nvme_path", "/nvme"},
                                                 {"gradient_accumulation_steps", 2},
                                                 {"gradient_clipping", 1.0},
                                                 {"zero3_save_16bit_model", true},
                                                 {"zero3_init_flag", false}}));
  EXPECT_EQ(config.text_of("mixed_precision"), "bf16");
}

TEST(Questions, SkipWhatEarlierAnswersMakeNeedless) {
  const auto [config, asked] =
      ask("\n\nyes\n\n\n");  // the CPU alone: neither DeepSpeed's nor GPUs' questions but one
  EXPECT_THAT(asked, ::testing::Not(HasSubstr("ZeRO stage")));
  EXPECT_EQ(config.text_of("distributed_type"), "NO");
  EXPECT_EQ(config.text_of("mixed_precision"), "no");
}

TEST(Questions, AskAgainAfterAWrongAnswer) {
  const auto [config, asked] = ask("\nmulti-CPU\nmany\n1\nperhaps\nno\nx\n2\n\n");
  EXPECT_THAT(asked, HasSubstr("Got \"many\", expected a whole number."));
  EXPECT_THAT(asked, HasSubstr("Please enter yes or no."));
  EXPECT_EQ(config.int_of("num_processes"), 2);
}

TEST(Questions, TakeAnswersFromAFile) {
  const ClusterConfig config = answered({{"distributed_type", "multi-GPU"},
                                         {"num_machines", 2},
                                         {"main_process_ip", "10.0.0.1"},
                                         {"main_process_port", 29500},
                                         {"zero_stage", 2},
                                         {"deepspeed_hostfile", "hosts"},
                                         {"deepspeed_inclusion_filter", "a@b"},
                                         {"num_processes", 8}});
  EXPECT_EQ(config.at("deepspeed_config")["deepspeed_multinode_launcher"], "pdsh");
  EXPECT_EQ(config.at("deepspeed_config")["deepspeed_inclusion_filter"], "a@b");
  EXPECT_EQ(config.int_of("num_machines"), 2);
}

TEST(Questions, NameTheAnswerAtFault) {
  const auto error_of = [](const Json& answers) {
    return testing::error_of<ConfigError>([&] { answered(answers); });
  };
  EXPECT_THAT(error_of({{"distributed_type", "TPU"}}),
              HasSubstr("distributed_type: got \"TPU\", expected one of No distributed"));
  EXPECT_THAT(error_of({{"zero_stage", 4}}), HasSubstr("zero_stage: got 4, expected one of 0, 1, 2, 3"));
  EXPECT_THAT(error_of({{"zero_stag", 2}}), HasSubstr("zero_stag: no question has this id"));
  EXPECT_THAT(error_of({{"distributed_type", "multi-GPU"}, {"num_processes", 2}, {"zero_stages", 2}}),
              HasSubstr("'zero_stage'"));
  EXPECT_THAT(error_of({{"distributed_type", "multi-GPU"}, {"num_machines", 2}}),
              HasSubstr("main_process_ip: the answer is missing"));
  EXPECT_THAT(error_of({{"distributed_type", "multi-GPU"}, {"num_processes", 1}}),
              HasSubstr("No distributed training"));
  std::istringstream in("\n");
  std::ostringstream out;
  Asker asker(in, out);
  EXPECT_THAT(testing::error_of<ConfigError>([&] { ask_for_config(asker); }),
              HasSubstr("the input ended before"));
}

TEST(ConfigCommand, WritesTheFileAndShowsIt) {
  const testing::TemporaryFolder folder;
  folder.write("answers.yaml", "zero_stage: 2\nnum_processes: 2\n");
  const std::string file = (folder / "sub/config.yaml").string();
  std::istringstream in;
  std::ostringstream out;
  run_config({.config_file = file,
              .answers_file = (folder / "answers.yaml").string(),
              .answers = {"mixed_precision=bf16"}},
             in, out);
  EXPECT_THAT(out.str(), HasSubstr("accelerate configuration saved at " + file));
  EXPECT_EQ(ClusterConfig::from_file(file).text_of("mixed_precision"), "bf16");
  const std::string again = (folder / "again.yaml").string();  // the file itself holds answers
  run_config({.config_file = again, .answers_file = file, .answers = {"zero_stage=3", "num_processes=4"}}, in,
             out);
  const ClusterConfig changed = ClusterConfig::from_file(again);
  EXPECT_EQ(changed.at("deepspeed_config")["zero_stage"], 3);
  EXPECT_EQ(changed.text_of("distributed_type"), "DEEPSPEED");
  EXPECT_EQ(changed.int_of("num_processes"), 4);
  EXPECT_EQ(changed.text_of("mixed_precision"), "bf16");
  run_env(file, out);
  EXPECT_THAT(out.str(), HasSubstr("\t- deepspeed_config: {'gradient_accumulation_steps': 1"));
  run_default_config(file, "no", out);
  EXPECT_THAT(out.str(), HasSubstr("will not override"));
  run_default_config((folder / "default.yaml").string(), "fp16", out);
  EXPECT_EQ(ClusterConfig::from_file(folder / "default.yaml").text_of("mixed_precision"), "fp16");
}

}  // namespace
}  // namespace deepspeed::accelerate
