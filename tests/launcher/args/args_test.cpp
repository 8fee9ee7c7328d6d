#include "deepspeed/launcher/args/args.h"

#include <fstream>
#include <map>

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
  for (const char* flag : {"--num_gpus", "--num_accelerators", "--num_procs"}) {
    const auto args = parse_args({flag, "3", "p", "--num_gpus=4"}).args;
    EXPECT_EQ(args.num_ranks, 3);
    EXPECT_EQ(args.num_ranks_flag, flag);
  }
}

TEST(Args, TakeTheLastOfSeveralValuesAndAbbreviatedFlags) {
  EXPECT_EQ(parse_args({"--num_gpus", "3", "--num_gpus=4", "p"}).args.num_ranks, 4);
  const auto args =
      parse_args({"--num_a", "3", "-q", "--launcher_arg=-i key", "--elast", "--", "--num_a"}).args;
  EXPECT_EQ(args.num_ranks, 3);
  EXPECT_EQ(args.num_ranks_flag, "--num_accelerators");
  EXPECT_EQ(args.runner_args, "-i key");
  EXPECT_TRUE(args.elastic);
  EXPECT_EQ(args.program, "--num_a");
  EXPECT_TRUE(parse_args({"--elast", "-q", "--num_a=3", "p", "--elast"}).args.elastic);
  EXPECT_EQ(parse_args({"--launcher_args", "--elast", "-Hhosts", "--num_n", "2", "p"}).args.num_nodes, 2);
  EXPECT_THAT(usage_error({"--num_", "3", "p"}), HasSubstr("unknown flag '--num_'")) << "of four flags";
}

TEST(Args, TakeDeepSpeedsDefaultsOfItsOwnNumbersForFlagsThatAreNotGiven) {
  for (const char* flag : {"--num_gpus", "--num_accelerators", "--num_procs"}) {
    const auto args = parse_args({flag, "-1", "--num_nodes", "-1", "--node_rank", "-1", "p"}).args;
    EXPECT_FALSE(args.num_ranks);
    EXPECT_FALSE(args.num_nodes);
    EXPECT_FALSE(args.node_rank);
  }
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
}

TEST(Args, RefuseBadValuesAndUnknownFlags) {
  EXPECT_THAT(usage_error({"--num_procs", "0", "p"}), HasSubstr("--num_procs is 0"));
  for (const std::string flag :
       {"--num_gpus", "--num_procs", "--num_accelerators", "--num_nodes", "--node_rank"})
    EXPECT_THAT(usage_error({flag, "-2", "p"}), HasSubstr(flag + " is -2, expected"));
  EXPECT_THAT(usage_error({"--num_procs", "two", "p"}), HasSubstr("--num_procs"));
  EXPECT_THAT(usage_error({"--master_port", "70000", "p"}), HasSubstr("--master_port is 70000"));
  EXPECT_THAT(usage_error({"--log_level", "loud", "p"}), HasSubstr("loud"));
  EXPECT_THAT(usage_error({"--num_procz", "2", "p"}), HasSubstr("unknown flag '--num_procz'"));
  EXPECT_THAT(usage_error({"--num_procs", "2"}), HasSubstr("no PROGRAM"));
}

TEST(Args, NameTheFlagAndTheWayOutOfWhatIsNotSupportedYet) {
  for (const Words& words : {Words{"--autotuning", "run", "p"}, Words{"--autotuning", "tune", "p.py"}}) {
    EXPECT_THAT(not_supported(words), HasSubstr("--autotuning is not supported yet"));
    EXPECT_THAT(not_supported(words), HasSubstr("set the batch sizes and the ZeRO stage"));
  }
}

TEST(Args, TakeTheFlagsOfSeveralMachines) {
  const auto args = parse_args({"--launcher", "OpenMPI", "--launcher_args", "-mca btl_tcp_if_include eth1",
                                "--ssh_port", "2222", "--no_ssh_check", "--force_multi", "--num_nodes", "3",
                                "--venv_script", "env/activate", "p"})
                        .args;
  EXPECT_EQ(args.runner, Runner::kOpenMpi);
  EXPECT_TRUE(args.runner_given && args.no_ssh_check && args.force_multi);
  EXPECT_EQ(args.runner_args, "-mca btl_tcp_if_include eth1");
  EXPECT_EQ(args.ssh_port, 2222);
  EXPECT_EQ(args.num_nodes, 3);
  EXPECT_EQ(args.venv_script, "env/activate");
  EXPECT_EQ(parse_args({"p"}).args.runner, Runner::kPdsh);
  EXPECT_FALSE(parse_args({"p"}).args.runner_given);
  const auto node = parse_args({"--no_ssh", "--node_rank", "2", "p"}).args;
  EXPECT_TRUE(node.no_ssh);
  EXPECT_EQ(node.node_rank, 2);
  const auto elastic = parse_args({"--elastic_training", "--min_elastic_nodes", "2", "--max_elastic_nodes",
                                   "4", "--max_restarts", "7", "p"})
                           .args;
  EXPECT_TRUE(elastic.elastic);
  EXPECT_EQ(elastic.min_nodes, 2);
  EXPECT_EQ(elastic.max_nodes, 4);
  EXPECT_EQ(elastic.max_restarts, 7);
}

TEST(Args, RefuseFlagsOfSeveralMachinesThatDoNotGoTogether) {
  EXPECT_THAT(usage_error({"--launcher", "rsh", "p"}),
              HasSubstr("--launcher is 'rsh', expected one of: pdsh, ssh"));
  EXPECT_THAT(usage_error({"--no_ssh", "p"}), HasSubstr("--no_ssh is given without --node_rank"));
  EXPECT_THAT(usage_error({"--node_rank", "1", "p"}), HasSubstr("--node_rank 1 is given without --no_ssh"));
  EXPECT_THAT(usage_error({"--ssh_port", "0", "p"}), HasSubstr("--ssh_port is 0"));
  EXPECT_THAT(usage_error({"--num_nodes", "0", "p"}), HasSubstr("--num_nodes is 0"));
  EXPECT_THAT(usage_error({"--min_elastic_nodes", "2", "p"}),
              HasSubstr("--min_elastic_nodes is given without --elastic_training"));
  EXPECT_THAT(usage_error({"--elastic_training", "--launcher", "slurm", "p"}),
              HasSubstr("expected pdsh or ssh"));
  EXPECT_THAT(usage_error({"--elastic_training", "--no_ssh", "--node_rank", "0", "p"}),
              HasSubstr("--elastic_training and --no_ssh"));
  EXPECT_THAT(
      usage_error({"--elastic_training", "--min_elastic_nodes", "3", "--max_elastic_nodes", "2", "p"}),
      HasSubstr("--min_elastic_nodes is 3, expected at most --max_elastic_nodes, 2"));
  EXPECT_THAT(usage_error({"--slurm_comment", "x", "p"}), HasSubstr("without --launcher slurm"));
}

TEST(Args, ListTheFlagsForOtherLanguages) {
  std::map<std::string, LaunchFlag> flags;
  for (const LaunchFlag& flag : launch_flags()) flags[flag.names.front()] = flag;
  const LaunchFlag& hostfile = flags["--hostfile"];
  EXPECT_THAT(hostfile.names, ElementsAre("--hostfile", "-H"));
  EXPECT_EQ(hostfile.kind + " " + hostfile.default_value, "text /job/hostfile");
  EXPECT_THAT(hostfile.help, HasSubstr("HOST slots=N"));
  EXPECT_THAT(flags["--num_gpus"].names, ElementsAre("--num_gpus", "--num_accelerators", "--num_procs"));
  const std::pair<const char*, const char*> expected[] = {{"--num_gpus", "number -1"},
                                                          {"--num_nodes", "number -1"},
                                                          {"--node_rank", "number -1"},
                                                          {"--master_port", "number 29500"},
                                                          {"--max_restarts", "number 100"},
                                                          {"--ssh_port", "number "},
                                                          {"--launcher", "text pdsh"},
                                                          {"--log_level", "text info"},
                                                          {"--enable_each_rank_log", "text None"},
                                                          {"--include", "text "},
                                                          {"--save_pid", "switch "},
                                                          {"--quiet", "switch "}};
  for (const auto& [name, what] : expected) {
    EXPECT_EQ(flags[name].kind + " " + flags[name].default_value, what) << name;
    EXPECT_NE(flags[name].help, "") << name;
  }
  for (const char* hidden : {"--world_info", "--autotuning"}) EXPECT_EQ(flags.at(hidden).help, "") << hidden;
  for (const char* prints : {"--help", "--version", "--help-config"}) EXPECT_FALSE(flags.contains(prints));
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
