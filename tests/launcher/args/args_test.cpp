#include "deepspeed/launcher/args/args.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/places/places.h"
#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

std::string usage_error(const Words& words) {
  return error_of<UsageError>([&] { parse_args(words); });
}

std::string not_supported(const Words& words) {
  return error_of<NotSupportedError>([&] { parse_args(words); });
}

TEST(Args, LeaveEverythingAfterTheProgramToIt) {
  const auto args =
      parse_args({"--num_procs", "2", "train", "--num_gpus", "3", "-q", "--", "--help", "x"}).args;
  EXPECT_EQ(args.program, "train");
  EXPECT_EQ(args.num_ranks, 2);
  EXPECT_THAT(args.program_args, ElementsAre("--num_gpus", "3", "-q", "--", "--help", "x"));
}

TEST(Args, HaveDeepSpeedsDefaults) {
  const auto args = parse_args({"train"}).args;
  EXPECT_EQ(args.hostfile, "/job/hostfile");
  EXPECT_FALSE(args.hostfile_given);
  EXPECT_FALSE(args.num_ranks);
  EXPECT_FALSE(args.master_port);
  EXPECT_FALSE(args.bind_cores_to_rank);
  EXPECT_FALSE(args.save_pid);
  EXPECT_EQ(args.log_level, log::Level::kInfo);
  EXPECT_THAT(args.program_args, IsEmpty());
}

TEST(Args, TakeEveryFlag) {
  const auto args = parse_args({"-H", "hosts", "-i", "localhost:0,1", "--master_port=1234", "--master_addr",
                                "::1", "--bind_core_list", "0-1", "--enable_each_rank_log", "logs",
                                "--save_pid", "--no_local_rank", "--node_rank", "0", "-q", "./train"})
                        .args;
  EXPECT_TRUE(args.hostfile_given);
  EXPECT_EQ(args.hostfile, "hosts");
  EXPECT_EQ(args.include, "localhost:0,1");
  EXPECT_EQ(args.master_port, 1234);
  EXPECT_EQ(args.master_addr, "::1");
  EXPECT_TRUE(args.bind_cores_to_rank);
  EXPECT_EQ(args.bind_core_list, "0-1");
  EXPECT_EQ(args.each_rank_log_dir, "logs");
  EXPECT_TRUE(args.save_pid);
  EXPECT_EQ(args.log_level, log::Level::kError);
  EXPECT_EQ(args.program, "./train");
}

TEST(Args, CountRanksUnderEachName) {
  EXPECT_EQ(parse_args({"--num_accelerators", "3", "p"}).args.num_ranks, 3);
  EXPECT_FALSE(parse_args({"--num_procs", "3", "p"}).args.num_ranks_means_gpus);
  EXPECT_TRUE(parse_args({"--num_gpus", "3", "p"}).args.num_ranks_means_gpus);
}

TEST(Args, TakeDeepSpeedsDefaultsOfItsOwnNumbersForFlagsThatAreNotGiven) {
  const auto args = parse_args({"--num_gpus", "-1", "--num_nodes", "-1", "--node_rank", "-1", "p"}).args;
  EXPECT_FALSE(args.num_ranks);
  EXPECT_FALSE(args.num_ranks_means_gpus);
}

TEST(Args, TakeTheFolderNameNoneAsNoFolder) {
  EXPECT_EQ(parse_args({"--enable_each_rank_log", "None", "p"}).args.each_rank_log_dir, "");
}

TEST(Args, PrintHelpAndVersion) {
  EXPECT_THAT(*parse_args({"--help"}).text_to_print, HasSubstr("--bind_core_list"));
  const std::string version = *parse_args({"--version"}).text_to_print;
  ASSERT_THAT(version, ::testing::StartsWith("deepspeed-cpp "));
  const std::string number = version.substr(14, version.find('\n') - 14);
  std::ifstream build(testing::source_folder() / "CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(build), std::istreambuf_iterator<char>()};
  EXPECT_THAT(text, HasSubstr("project(deepspeed VERSION " + number + " "));
}

TEST(Args, RefuseFlagsThatContradictEachOther) {
  EXPECT_THAT(usage_error({"-i", "a", "-e", "b", "p"}), HasSubstr("--include and --exclude"));
  EXPECT_THAT(usage_error({"-i", "a", "--num_gpus", "1", "p"}), HasSubstr("--num_gpus and --include"));
  EXPECT_THAT(usage_error({"-e", "a", "--num_procs", "1", "p"}), HasSubstr("--num_procs and --exclude"));
  EXPECT_THAT(usage_error({"-e", "a", "--num_nodes", "1", "p"}), HasSubstr("--num_nodes and --exclude"));
  EXPECT_THAT(usage_error({"--num_gpus", "1", "--num_procs", "1", "p"}),
              HasSubstr("--num_procs and --num_gpus"));
}

TEST(Args, RefuseBadValuesAndUnknownFlags) {
  EXPECT_THAT(usage_error({"--num_procs", "0", "p"}), HasSubstr("--num_procs is 0"));
  for (const char* flag : {"--num_procs", "--num_accelerators"})
    EXPECT_THAT(usage_error({flag, "-1", "p"}), HasSubstr(" is -1, expected")) << flag;
  for (const char* flag : {"--num_gpus", "--num_nodes", "--node_rank"})
    EXPECT_THAT(usage_error({flag, "-2", "p"}), HasSubstr(" is -2, expected")) << flag;
  EXPECT_THAT(usage_error({"--num_procs", "two", "p"}), HasSubstr("--num_procs"));
  EXPECT_THAT(usage_error({"--master_port", "70000", "p"}), HasSubstr("--master_port is 70000"));
  EXPECT_THAT(usage_error({"--log_level", "loud", "p"}), HasSubstr("loud"));
  EXPECT_THAT(usage_error({"--num_procz", "2", "p"}), HasSubstr("unknown flag '--num_procz'"));
  EXPECT_THAT(usage_error({"--num_procs", "2"}), HasSubstr("no PROGRAM"));
}

TEST(Args, NameTheFlagAndTheWayOutOfWhatIsNotSupportedYet) {
  for (const Words& words :
       {Words{"--autotuning", "run", "p"}, Words{"--autotuning", "tune", "p.py"},
        Words{"--elastic_training", "p"}, Words{"--launcher", "slurm", "p"}, Words{"--num_nodes", "2", "p"},
        Words{"--node_rank", "1", "p"}, Words{"--force_multi", "p"}, Words{"--ssh_port", "22", "p"}}) {
    const std::string text = not_supported(words);
    EXPECT_THAT(text, HasSubstr(words.front()));
    EXPECT_THAT(text, HasSubstr("is not supported yet"));
  }
  EXPECT_THAT(not_supported({"--autotuning", "tune", "p"}),
              HasSubstr("set the batch sizes and the ZeRO stage"));
}

TEST(Args, KnowWhatPythonRuns) {
  EXPECT_TRUE(parse_args({"train.py", "--lr", "1"}).args.runs_python());
  EXPECT_TRUE(parse_args({"--module", "package.train"}).args.runs_python());
  EXPECT_FALSE(parse_args({"--no_python", "train.py"}).args.runs_python());
  for (const char* program : {"train", "./train.sh", ".py", "train.pyc"})
    EXPECT_FALSE(parse_args({program}).args.runs_python()) << program;
  EXPECT_FALSE(parse_args({"train.py"}).args.no_local_rank);
  EXPECT_TRUE(parse_args({"--no_local_rank", "train.py"}).args.no_local_rank);
  EXPECT_THAT(usage_error({"--module", "--no_python", "train"}), HasSubstr("--module and --no_python"));
}

TEST(Args, PrintTheKeysOfTheConfig) {
  const auto printed = [](const Words& words) { return parse_args(words).text_to_print.value_or(""); };
  EXPECT_THAT(printed({"--help-config"}), HasSubstr("\nfp16.loss_scale: a number of at least 0"));
  EXPECT_THAT(printed({"--help-config"}), HasSubstr("train_batch_size: "));
  const std::string section = printed({"--help-config", "zero_optimization.offload_param"});
  EXPECT_THAT(
      section,
      HasSubstr("zero_optimization.offload_param.buffer_count: a whole number of at least 0; default 5"));
  EXPECT_THAT(section, ::testing::Not(HasSubstr("fp16")));
  EXPECT_THAT(printed({"--help-config=seed"}), ::testing::StartsWith("seed: a whole number"));
  EXPECT_THAT(usage_error({"--help-config", "fp61"}), HasSubstr("did you mean 'fp16'?"));
  EXPECT_THAT(printed({"--help-config-markdown"}), ::testing::StartsWith("# The config\n"));
  EXPECT_THAT(printed({"--help"}), HasSubstr("--help-config"));
}

}  // namespace
}  // namespace deepspeed::launcher
