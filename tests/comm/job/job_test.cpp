#include "deepspeed/comm/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/job/discovery.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace std::chrono_literals;

class JobFromEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_SIZE",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "DEEPSPEED_TIMEOUT",
                             "DEEPSPEED_LISTEN_ADDR",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "PMI_LOCAL_RANK",
                             "PMI_LOCAL_SIZE",
                             "PMIX_RANK",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "MV2_COMM_WORLD_RANK",
                             "MV2_COMM_WORLD_SIZE",
                             "MV2_COMM_WORLD_LOCAL_RANK",
                             "MV2_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             "SLURM_NODEID",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_NODELIST"}) {
      env::set(name, std::nullopt);
    }
  }
  static void set_rank(int rank, int size) {
    env::set("RANK", std::to_string(rank));
    env::set("WORLD_SIZE", std::to_string(size));
  }
  static void set_all(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) env::set(name, std::string(value));
  }
  // Sets the variables of srun's task 5 of 8, the second of two on its node.
  static void set_slurm_task() {
    set_all({{"SLURM_PROCID", "5"},
             {"SLURM_STEP_NUM_TASKS", "8"},
             {"SLURM_LOCALID", "1"},
             {"SLURM_NODEID", "1"},
             {"SLURM_STEP_TASKS_PER_NODE", "4,2(x2)"},
             {"SLURM_STEP_NODELIST", "gpu[07,09-10]"}});
  }
  static auto throws(const std::string& part) { return ThrowsMessage<UsageError>(HasSubstr(part)); }
};

TEST_F(JobFromEnvironment, WithoutVariablesIsAWorldOfOne) {
  const auto job = describe_job({});
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.rendezvous, Rendezvous::kNone);
  EXPECT_EQ(job.timeout, 30min);
}

TEST_F(JobFromEnvironment, ReadsTheLaunchersVariables) {
  set_rank(3, 4);
  env::set("LOCAL_RANK", std::string("1"));
  env::set("LOCAL_WORLD_SIZE", std::string("2"));
  env::set("MASTER_ADDR", std::string("node7"));
  env::set("DEEPSPEED_TIMEOUT", std::string("2"));
  const auto job = describe_job({.distributed_port = 1234});
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.world_size, 4);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  EXPECT_EQ(job.master_addr, "node7");
  EXPECT_EQ(job.master_port, 1234);
  EXPECT_EQ(job.timeout, 2min);
  EXPECT_FALSE(job.is_one_machine());
  env::set("MASTER_PORT", std::string("77"));
  EXPECT_EQ(describe_job({.timeout = 5s}).master_port, 77);
  EXPECT_EQ(describe_job({.timeout = 5s}).timeout, 5s);
}

TEST_F(JobFromEnvironment, SaysWhereTheRanksMeet) {
  set_rank(0, 2);
  env::set("MASTER_ADDR", std::string("node7"));
  EXPECT_EQ(describe_job({}).rendezvous, Rendezvous::kTcp);
  env::set("TORCHELASTIC_USE_AGENT_STORE", std::string("True"));
  EXPECT_EQ(describe_job({}).rendezvous, Rendezvous::kAgent);
  EXPECT_EQ(describe_job({.init_method = "tcp://node7:99"}).rendezvous, Rendezvous::kTcp);
  env::set("LOCAL_WORLD_SIZE", std::string("2"));
  EXPECT_EQ(describe_job({}).rendezvous, Rendezvous::kLocal);
  env::set("LOCAL_WORLD_SIZE", std::string("1"));
  EXPECT_EQ(describe_job({.init_method = "tcp://127.0.0.1:99"}).rendezvous, Rendezvous::kLocal);
  env::set("DEEPSPEED_LISTEN_ADDR", std::string("0.0.0.0"));
  EXPECT_EQ(describe_job({.init_method = "tcp://127.0.0.1:99"}).rendezvous, Rendezvous::kTcp);
}

TEST_F(JobFromEnvironment, RefusesNumbersThatNoJobHas) {
  set_rank(0, 0);
  EXPECT_THAT([] { describe_job({}); }, throws("WORLD_SIZE is 0, expected 1 or more"));
  set_rank(0, 1);
  env::set("LOCAL_RANK", std::string("-1"));
  EXPECT_THAT([] { describe_job({}); }, throws("LOCAL_RANK is -1 and LOCAL_SIZE 1"));
  set_all({{"LOCAL_RANK", "0"}, {"LOCAL_SIZE", "0"}});
  EXPECT_THAT([] { describe_job({}); }, throws("LOCAL_RANK is 0 and LOCAL_SIZE 0"));
  set_all({{"LOCAL_SIZE", "1"}, {"DEEPSPEED_TIMEOUT", "0"}});
  EXPECT_THAT([] { describe_job({}); }, throws("the timeout (or DEEPSPEED_TIMEOUT, in minutes) is 0 ms"));
}

TEST_F(JobFromEnvironment, NamesTheVariableThatIsMissingOrWrong) {
  env::set("RANK", std::string("1"));
  EXPECT_THAT([] { describe_job({}); }, throws("WORLD_SIZE is not set"));
  env::set("WORLD_SIZE", std::string("2"));
  EXPECT_THAT([] { describe_job({}); }, throws("MASTER_ADDR is not set"));
  env::set("RANK", std::string("2"));
  EXPECT_THAT([] { describe_job({}); }, throws("RANK is 2, expected 0 to 1"));
  env::set("RANK", std::string("one"));
  EXPECT_THAT([] { describe_job({}); }, throws("RANK is 'one'"));
  env::set("RANK", std::nullopt);
  EXPECT_THAT([] { describe_job({}); }, throws("RANK is not set"));
  set_rank(0, 2);
  env::set("MASTER_ADDR", std::string("localhost"));
  env::set("MASTER_PORT", std::string("70000"));
  EXPECT_THAT([] { describe_job({}); }, throws("MASTER_PORT names port 70000"));
}

TEST_F(JobFromEnvironment, TakesMpiVariablesOnlyWhereRankIsUnsetAndDiscoveryIsOn) {
  env::set("OMPI_COMM_WORLD_RANK", std::string("1"));
  env::set("OMPI_COMM_WORLD_SIZE", std::string("2"));
  env::set("OMPI_COMM_WORLD_LOCAL_RANK", std::string("1"));
  env::set("OMPI_COMM_WORLD_LOCAL_SIZE", std::string("2"));
  const auto job = describe_job({});
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.master_addr, "127.0.0.1");
  EXPECT_EQ(describe_job({.auto_mpi_discovery = false}).world_size, 1);
  set_rank(0, 1);
  EXPECT_EQ(describe_job({}).rank, 0);
}

TEST_F(JobFromEnvironment, TakesTheVariablesOfMpich) {
  env::set("PMI_RANK", std::string("3"));
  env::set("PMI_SIZE", std::string("4"));
  env::set("MPI_LOCALRANKID", std::string("1"));
  env::set("MPI_LOCALNRANKS", std::string("2"));
  EXPECT_THAT([] { describe_job({}); }, throws("mpirun -x MASTER_ADDR=HOST"));
  env::set("MASTER_ADDR", std::string("first"));
  const auto job = describe_job({});
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.world_size, 4);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  EXPECT_EQ(job.launcher, "MPICH or Intel MPI");
  env::set("PMI_SIZE", std::nullopt);
  EXPECT_THAT([] { describe_job({}); }, throws("PMI_SIZE of MPICH or Intel MPI is not set"));
}

TEST_F(JobFromEnvironment, TakesTheVariablesOfTheTasksOfSlurm) {
  env::set("SLURM_PROCID", std::string("5"));
  env::set("SLURM_LOCALID", std::string("1"));
  env::set("SLURM_NODEID", std::string("1"));
  env::set("SLURM_STEP_TASKS_PER_NODE", std::string("4,2(x2)"));
  env::set("SLURM_STEP_NODELIST", std::string("gpu[07,09-10]"));
  EXPECT_EQ(describe_job({}).world_size, 1) << "a shell of sbatch is no rank";
  env::set("SLURM_STEP_NUM_TASKS", std::string("8"));
  const auto job = describe_job({});
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  EXPECT_EQ(job.master_addr, "gpu07");
  EXPECT_EQ(job.launcher, "Slurm");
}

TEST_F(JobFromEnvironment, IsSlurmsWhereItsPluginSetsTheVariablesOfPmiToo) {
  set_slurm_task();
  set_all({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
  const auto job = describe_job({});
  EXPECT_EQ(job.launcher, "Slurm");
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_TRUE(job.knows_local_rank);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  EXPECT_EQ(job.master_addr, "gpu07");
}

TEST_F(JobFromEnvironment, IsThatOfMpiLaunchersWhoseHelpersSlurmStarted) {
  set_slurm_task();  // inherited from the helper, of which each node has one
  set_all({{"PMI_RANK", "11"},
           {"PMI_SIZE", "16"},
           {"MPI_LOCALRANKID", "3"},
           {"MPI_LOCALNRANKS", "4"},
           {"MASTER_ADDR", "first"}});
  auto job = describe_job({});
  EXPECT_EQ(job.launcher, "MPICH or Intel MPI");
  EXPECT_EQ(job.rank, 11);
  EXPECT_EQ(job.world_size, 16);
  EXPECT_EQ(job.local_rank, 3);
  EXPECT_EQ(job.local_size, 4);
  set_all({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}});
  job = describe_job({});
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.local_rank, 0) << "mpiexec's own count of its ranks on the node";
  EXPECT_EQ(job.local_size, 1);
  set_all({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}});
  job = describe_job({});
  EXPECT_EQ(job.launcher, "Open MPI");
  EXPECT_EQ(job.rank, 2);
  EXPECT_FALSE(job.knows_local_rank);
}

TEST_F(JobFromEnvironment, TakesTheVariablesOfOtherLaunchers) {
  set_all({{"MASTER_ADDR", "first"},
           {"PMI_RANK", "3"},
           {"PMI_SIZE", "4"},
           {"PMI_LOCAL_RANK", "1"},
           {"PMI_LOCAL_SIZE", "2"}});
  auto job = describe_job({});
  EXPECT_TRUE(job.knows_local_rank);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 2);
  clear();
  set_all({{"MASTER_ADDR", "first"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  EXPECT_FALSE(describe_job({}).knows_local_rank);
  clear();
  set_all({{"MASTER_ADDR", "first"},
           {"MV2_COMM_WORLD_RANK", "2"},
           {"MV2_COMM_WORLD_SIZE", "6"},
           {"MV2_COMM_WORLD_LOCAL_RANK", "2"},
           {"MV2_COMM_WORLD_LOCAL_SIZE", "3"}});
  job = describe_job({});
  EXPECT_EQ(job.launcher, "MVAPICH2");
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.local_size, 3);
}

TEST_F(JobFromEnvironment, NeedsTheNumberOfRanksBesideThatOfPmix) {
  set_all({{"MASTER_ADDR", "first"}, {"PMIX_RANK", "1"}});
  EXPECT_THAT([] { describe_job({}); }, throws("PMIX_RANK is 1, but none tells the number of ranks"));
  env::set("WORLD_SIZE", std::string("2"));
  const auto job = describe_job({});
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_EQ(job.launcher, "PMIx");
}

TEST(SlurmLists, AreRead) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("a[001-003,7]b,c"), "a001b");
  EXPECT_EQ(first_slurm_host("rack[2-3]n[10,12]"), "rack2n10");
  EXPECT_EQ(first_slurm_host("broken[1-"), "");
  EXPECT_EQ(first_slurm_host(""), "");
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 1), 4);
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 2), 3);
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 3), std::nullopt);
  EXPECT_EQ(slurm_tasks_on_node("4(x", 0), std::nullopt);
  EXPECT_EQ(slurm_tasks_on_node("", 0), std::nullopt);
}

TEST_F(JobFromEnvironment, ReadsAndChecksTheInitMethod) {
  const auto tcp = describe_job({.init_method = "tcp://10.0.0.1:99", .rank = 1, .world_size = 2});
  EXPECT_EQ(tcp.master_addr, "10.0.0.1");
  EXPECT_EQ(tcp.master_port, 99);
  EXPECT_EQ(describe_job({.init_method = "tcp://[::1]:99", .rank = 1, .world_size = 2}).master_addr, "::1");
  const auto file = describe_job({.init_method = "file:///tmp/x", .rank = 1, .world_size = 2});
  EXPECT_EQ(file.rendezvous, Rendezvous::kFile);
  EXPECT_EQ(file.path, "/tmp/x");
  for (const char* wrong :
       {"tcp://host", "tcp://:9", "tcp://host:", "tcp://host:9x", "file://relative", "mpi://"}) {
    EXPECT_THAT([&] { describe_job({.init_method = wrong, .rank = 0, .world_size = 2}); },
                throws("init_method"));
  }
}

}  // namespace
}  // namespace deepspeed::comm
