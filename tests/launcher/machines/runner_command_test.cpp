// The command lines of all runners, also of those that no machine of the tests has.
#include "deepspeed/launcher/machines/runner_command.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/machines/exports.h"

#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

RunnerJob job_of(Runner runner, const Strings& args = {}) {
  RunnerJob job;
  job.runner = runner;
  job.nodes = {{"one", {0, 1}}, {"two", {0, 1}}};
  job.runner_args = args;
  job.node_program = "/opt/ds/bin/ds_node";
  job.hostfile = "/job/hostfile";
  job.job_id = "8a";
  return job;
}

std::string line_of(const RunnerJob& job) { return join(runner_command(job), " "); }

TEST(RunnerCommand, StartsAProgramOnEachMachineByPdsh) {
  EXPECT_EQ(line_of(job_of(Runner::kPdsh)),
            "pdsh -S -f 1024 -w one,two exec /opt/ds/bin/ds_node --job 8a --node %n");
  RunnerJob job = job_of(Runner::kPdsh, {"-t", "5"});
  job.node_program = "/opt/100% $(x)/ds_node";
  EXPECT_EQ(line_of(job),
            "pdsh -S -f 1024 -w one,two -t 5 exec '/opt/100%% $(x)/ds_node' --job 8a --node %n");
  job.ssh_port = 2222;
  const auto variables = runner_variables(job, {{"PDSH_SSH_ARGS_APPEND", "-q"}});
  EXPECT_EQ(variables.at("PDSH_RCMD_TYPE"), "ssh");
  EXPECT_EQ(variables.at("PDSH_SSH_ARGS_APPEND"), "-q -p 2222");
}

TEST(RunnerCommand, StartsOneSshForEachMachine) {
  RunnerJob job = job_of(Runner::kSsh, {"-i", "key"});
  job.ssh_port = 2222;
  const std::string start =
      "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 "
      "-o ServerAliveCountMax=3 ";
  EXPECT_EQ(join(ssh_command(job, "one", {"/a b/ds_node", "--link"}, {}), " "),
            start + "-p 2222 -i key -- one exec '/a b/ds_node' --link");
  // pdsh's options of ssh reach the machines that it reaches.
  const Environment set = {{"PDSH_SSH_ARGS", "-o StrictHostKeyChecking=no -p 12350 -2 -l%u %h"}};
  EXPECT_EQ(join(ssh_command(job_of(Runner::kPdsh), "one", {"x"}, set), " "),
            start + "-o StrictHostKeyChecking=no -p 12350 -2 -- one exec x");
  EXPECT_ERROR(UsageError, runner_command(job), "ssh has a command for each machine");
}

TEST(RunnerCommand, PassesOpenMpiOnlyTheNamesOfVariables) {
  RunnerJob job = job_of(Runner::kOpenMpi);
  job.variables = {"DEEPSPEED_JOB", "UCX_TLS"};
  EXPECT_EQ(
      line_of(job),
      "mpirun -n 4 -hostfile /job/hostfile --mca btl ^openib --mca btl_tcp_if_include eth0 -x DEEPSPEED_JOB "
      "-x UCX_TLS /opt/ds/bin/ds_node --rank openmpi");
  job.runner_args = {"-mca", "btl_tcp_if_include", "eth1"};
  job.variables.clear();
  EXPECT_EQ(line_of(job),
            "mpirun -n 4 -hostfile /job/hostfile --mca btl ^openib -mca btl_tcp_if_include eth1 "
            "/opt/ds/bin/ds_node --rank openmpi");
  EXPECT_EQ(runner_variables(job, {}).at("UCX_TLS"), "tcp");
}

TEST(RunnerCommand, StartsRanksByMpich) {
  EXPECT_EQ(line_of(job_of(Runner::kMpich, {"-launcher", "ssh"})),
            "mpirun -n 4 -ppn 2 -launcher ssh -genvall -hosts one,two /opt/ds/bin/ds_node --rank mpich");
}

TEST(RunnerCommand, HasAPartForEachRankWithIntelMpi) {
  const auto words = runner_command(job_of(Runner::kIntelMpi));
  const std::string line = join(words, " ");
  EXPECT_THAT(
      line, ::testing::StartsWith("mpirun -ppn 2 -genvall -genv I_MPI_PIN 0 -hosts one,two -n 1 -env RANK 0 "
                                  "-env LOCAL_RANK 0 /opt/ds/bin/ds_node --rank impi : -n 1 -env RANK 1 "));
  EXPECT_THAT(line,
              ::testing::EndsWith(": -n 1 -env RANK 3 -env LOCAL_RANK 1 /opt/ds/bin/ds_node --rank impi"));
  EXPECT_EQ(std::count(words.begin(), words.end(), ":"), 3);
}

TEST(RunnerCommand, StartsRanksByMvapich) {
  RunnerJob job = job_of(Runner::kMvapich);
  job.host_list = "/tmp/hosts";
  EXPECT_EQ(line_of(job),
            "mpirun -np 4 -ppn 2 --hostfile /tmp/hosts -genvall /opt/ds/bin/ds_node --rank mvapich");
  const auto variables = runner_variables(job, {});
  EXPECT_EQ(variables.at("MV2_SMP_USE_CMA"), "0");
  EXPECT_EQ(variables.size(), 6u);
}

TEST(RunnerCommand, StartsRanksBySlurm) {
  RunnerJob job = job_of(Runner::kSlurm, {"--partition", "gpu"});
  job.slurm_comment = "a b";
  EXPECT_THAT(runner_command(job),
              ElementsAre("srun", "-n", "4", "--partition", "gpu", "--comment", "a b", "--nodes", "2",
                          "--ntasks-per-node", "2", "--nodelist", "one,two", "--export=ALL",
                          "/opt/ds/bin/ds_node", "--rank", "slurm"));
  job = job_of(Runner::kSlurm);
  job.hostfile.clear();
  EXPECT_EQ(line_of(job), "srun -n 4 --export=ALL /opt/ds/bin/ds_node --rank slurm");
}

TEST(RunnerCommand, NeedsEqualSlotsIfTheRunnerDoes) {
  for (const Runner runner : {Runner::kMpich, Runner::kIntelMpi, Runner::kMvapich, Runner::kSlurm}) {
    RunnerJob job = job_of(runner);
    job.nodes[1].slots = {0};
    EXPECT_ERROR(UsageError, runner_command(job), name_of(runner), "got 2 on one and 1 on two");
  }
}

TEST(RunnerFlags, AreRefusedIfTheRunnerDoesNotHonourThem) {
  LaunchArgs args;
  args.runner = Runner::kMpich;
  args.include = "one";
  EXPECT_ERROR(UsageError, check_runner_flags(args), "--launcher mpich", "--include");
  args.include.clear();
  args.num_nodes = 1;
  EXPECT_ERROR(UsageError, check_runner_flags(args), "--launcher mpich", "--num_nodes");
  args.runner = Runner::kSlurm;
  args.include = "one:0";
  EXPECT_ERROR(UsageError, check_runner_flags(args), "--launcher slurm takes whole hosts", "'one:0'");
  args.runner = Runner::kSsh;
  EXPECT_NO_THROW(check_runner_flags(args));
}

TEST(ShellWords, AreCutAsAShellCutsThem) {
  EXPECT_THAT(split_words("-a  'b c' \"d \\\"e\\\" $f\" g\\ h ''", "--x"),
              ElementsAre("-a", "b c", "d \"e\" $f", "g h", ""));
  EXPECT_THAT(split_words("a'b'c \\$x '\\n'", "--x"), ElementsAre("abc", "$x", "\\n"));
  EXPECT_TRUE(split_words("  \n", "--x").empty());
  EXPECT_ERROR(UsageError, split_words("a 'b", "--launcher_args"), "--launcher_args: the quote ' in 'a 'b'");
}

TEST(ShellWords, AreQuotedSoThatAShellReadsTheText) {
  EXPECT_EQ(shell_word("/usr/bin/a-b_c:d@e%f+g=h,i.j"), "/usr/bin/a-b_c:d@e%f+g=h,i.j");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $x `y` \\ \"z\" \n!"), "'it'\\''s $x `y` \\ \"z\" \n!'");
  EXPECT_EQ(shell_word("h\xc3\xb6"), "'h\xc3\xb6'");
}

TEST(Exports, AreTheVariablesOfListedKindsAndThoseOfTheFiles) {
  const Environment own = {{"MLFLOW_RUN", "1"},    {"PYTHONPATH", "/lib"},   {"NCCL_DEBUG", "INFO"},
                           {"UCX_X", "2"},         {"HOME", "/home"},        {"CUDA_VISIBLE_DEVICES", "0"},
                           {"DS_ENV_FILE", "env"}, {"DS_ACCELERATOR", "cpu"}};
  const Environment exports = exports_of(own, {{"KEY", "a b"}, {"UCX_X", "3"}}, "/work");
  EXPECT_EQ(exports, (Environment{{"MLFLOW_RUN", "1"},
                                  {"PYTHONPATH", "/work:/lib"},
                                  {"NCCL_DEBUG", "INFO"},
                                  {"UCX_X", "3"},
                                  {"KEY", "a b"},
                                  {"DS_ACCELERATOR", "cpu"}}));
  EXPECT_EQ(exports_of({}, {}, "/work").at("PYTHONPATH"), "/work");
  const Environment interfaces = {{"AISC_JOB_NAME", "x"}, {"NCCL_IB_HCA", "mlx"}, {"NCCL_DEBUG", "INFO"}};
  EXPECT_FALSE(exports_of(interfaces, {}, "/work").contains("NCCL_IB_HCA"));
}

}  // namespace
}  // namespace deepspeed::launcher
