// The launcher with real processes: what ranks see, how they end, and that none is left.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/launcher/plan/machine.h"

#include "tests/launcher/node/launch_fixture.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

/// Says that the rank runs, then stays.
const std::string kStay = "echo $$ > $DIR/pid$RANK; echo $PPID > $DIR/parent$RANK; exec sleep 600";
/// The rank's shell also has a child, and one that has left its session and process group.
const std::string kStayWithFamily =
    "sleep 601 & setsid sleep 602 & (setsid sh -c 'sleep 603 & sleep 604' &); echo $$ > $DIR/pid$RANK; "
    "echo $PPID > $DIR/parent$RANK; sleep 600";

TEST_F(LaunchTest, GivesEachRankItsVariables) {
  start_script(3,
               "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_SIZE $LOCAL_WORLD_SIZE $CROSS_RANK $CROSS_SIZE "
               "$MASTER_ADDR > $DIR/rank$RANK; test $OMP_NUM_THREADS -ge 1 && test $MASTER_PORT -ge 1");
  EXPECT_EQ(wait(), 0) << err();
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(file(std::string("rank") + rank), std::string(rank) + " " + rank + " 3 3 3 0 1 127.0.0.1\n");
  }
  EXPECT_EQ(err(), "");
}

TEST_F(LaunchTest, PassesArgumentsAndBothOutputsThrough) {
  start({"--num_procs", "1", "/bin/sh", "-c", "echo \"out $1 $2\"; echo err >&2", "sh", "--quiet", "a b"});
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(out(), "out --quiet a b\n");
  EXPECT_EQ(err(), "err\n");
}

TEST_F(LaunchTest, LosesNoByteOfALongErrorOutput) {
  start_script(
      2, "i=0; while [ $i -lt 20000 ]; do echo rank$RANK line $i of a long output >&2; i=$((i+1)); done");
  EXPECT_EQ(wait(), 0);
  const std::string text = err();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 40000);
  EXPECT_THAT(text, HasSubstr("rank0 line 19999"));
  EXPECT_THAT(text, HasSubstr("rank1 line 19999"));
}

TEST_F(LaunchTest, BindsARankToItsCores) {
  start_script(1,
               "grep Cpus_allowed_list /proc/self/status > $DIR/cores; echo $OMP_NUM_THREADS > $DIR/threads",
               {"--bind_core_list", "0"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("cores"), "Cpus_allowed_list:\t0\n");
  EXPECT_EQ(file("threads"), "1\n");
}

/// What /proc tells of the cores of a process: "0-1,4" as numbers.
std::vector<int> cores_in(const std::string& status_line) {
  return parse_core_list(
      status_line.substr(status_line.find('\t') + 1, status_line.find('\n') - status_line.find('\t') - 1));
}

TEST_F(LaunchTest, BindsRanksToCoresThatTheyDoNotShare) {
  const Machine machine = read_machine();
  const std::string save =
      "grep Cpus_allowed_list /proc/self/status > $DIR/cores$RANK; echo $OMP_NUM_THREADS > $DIR/threads$RANK";
  const int num_ranks = static_cast<int>(std::min<size_t>(2, machine.physical_cores.size()));
  start_script(num_ranks, save, {"--bind_cores_to_rank"});
  EXPECT_EQ(wait(), 0) << err();
  const size_t share = machine.physical_cores.size() / static_cast<size_t>(num_ranks);
  std::vector<int> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto cores = cores_in(file("cores" + std::to_string(rank)));
    EXPECT_EQ(cores.size(), share);
    EXPECT_EQ(file("threads" + std::to_string(rank)), std::to_string(share) + "\n");
    all.insert(all.end(), cores.begin(), cores.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  for (const int core : all) EXPECT_THAT(machine.physical_cores, ::testing::Contains(core));
}

TEST_F(LaunchTest, SaysWhatIsWrongWithTheCoresToBind) {
  start_script(1, "true", {"--bind_core_list", "65000"});
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr("--bind_core_list: core 65000 is not one that this process may run on"));
  start_script(500, "true", {"--bind_cores_to_rank"});
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr("for 500 ranks, expected at least one each"));
}

TEST_F(LaunchTest, ForwardsTheExitCodeOfTheRankThatFailedAndItsLastLines) {
  start_script(
      2,
      "[ $RANK = 1 ] || exec sleep 60; i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i >&2; done; "
      "exit 7");
  EXPECT_EQ(wait(), 7);
  EXPECT_THAT(err(), ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 7"));
  EXPECT_THAT(err(), HasSubstr("last lines of rank 1:\n  | line 11\n"));
  EXPECT_THAT(err(), HasSubstr("  | line 30\n"));
  EXPECT_THAT(err(), HasSubstr("rank 0 SIGTERM, rank 1 exit code 7"));
  EXPECT_TRUE(processes_left().empty());
}

TEST_F(LaunchTest, NamesTheSignalThatEndedARank) {
  start_script(1, "kill -SEGV $$");
  EXPECT_EQ(wait(), 128 + SIGSEGV);
  EXPECT_THAT(err(), ContainsRegex("rank 0 \\(pid [0-9]+\\) was ended by SIGSEGV"));
}

TEST_F(LaunchTest, EndsAllAfterTheKillOfOne) {
  start_script(3, kStayWithFamily);
  wait_for_files({"pid0", "pid1", "pid2"});
  ASSERT_EQ(::kill(pid_in("pid1"), SIGKILL), 0);
  EXPECT_EQ(wait(), 128 + SIGKILL);
  EXPECT_TRUE(processes_left().empty());
  EXPECT_THAT(err(), HasSubstr("rank 1 (pid " + std::to_string(pid_in("pid1")) + ") was ended by SIGKILL"));
  EXPECT_THAT(err(), Not(HasSubstr("out of memory")));
}

TEST_F(LaunchTest, KillsWhatIgnoresSigterm) {
  start_script(2, "trap '' TERM; echo $$ > $DIR/pid$RANK; while :; do sleep 1; done");
  wait_for_files({"pid0", "pid1"});
  const auto begin = Clock::now();
  ::kill(pid_in("pid0"), SIGKILL);
  EXPECT_EQ(wait(), 128 + SIGKILL);
  EXPECT_GT(Clock::now() - begin, 2s);  // it had its time to end by itself
  EXPECT_TRUE(processes_left().empty());
  EXPECT_THAT(err(), HasSubstr("rank 0 SIGKILL, rank 1 SIGKILL"));
}

TEST_F(LaunchTest, EndsStoppedRanksToo) {
  start_script(2, kStay);
  wait_for_files({"parent0", "parent1"});
  ::kill(pid_in("pid0"), SIGSTOP);
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_TRUE(processes_left().empty());
}

TEST_F(LaunchTest, LeavesNoProcessWhenItIsKilledItself) {
  start_script(2, kStayWithFamily);
  wait_for_files({"parent0", "parent1"});
  const pid_t supervisor = pid_in("parent0");
  EXPECT_NE(supervisor, launcher_);
  ::kill(launcher_, SIGKILL);
  EXPECT_EQ(wait(), -SIGKILL);
  EXPECT_TRUE(all_gone_within(1min));
  EXPECT_TRUE(ended_within(supervisor, 1min));
}

TEST_F(LaunchTest, LeavesNoProcessWhenItsProcessGroupIsKilled) {
  start_script(2, kStayWithFamily);
  wait_for_files({"parent0", "parent1"});
  ::kill(-launcher_, SIGKILL);
  EXPECT_EQ(wait(), -SIGKILL);
  EXPECT_TRUE(all_gone_within(1min));
}

TEST_F(LaunchTest, LeavesNoProcessWhenTheSupervisorIsKilled) {
  start_script(2, kStayWithFamily);
  wait_for_files({"parent0", "parent1"});
  ::kill(pid_in("parent0"), SIGKILL);
  EXPECT_EQ(wait(), 128 + SIGKILL);
  EXPECT_TRUE(processes_left().empty());
  EXPECT_THAT(err(), HasSubstr("the supervisor of the ranks was ended by SIGKILL"));
}

TEST_F(LaunchTest, LeavesNoProcessThatOutlivedItsRank) {
  start_script(2, "(setsid sleep 60 &) ; exit 0");
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_TRUE(processes_left().empty());
}

/// Has the system refuse that this process adopts orphans, as emulators do. Returns whether it does.
bool forbid_adoption() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_CHILD_SUBREAPER, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  return ::prctl(PR_SET_CHILD_SUBREAPER, 0) != 0;
}

TEST_F(LaunchTest, GoesOnAndSaysSoOnceWhereNoProcessMayAdoptOrphans) {
  constexpr int kNoFilter = 77;
  prepare_ = [] {
    if (!forbid_adoption()) ::_exit(kNoFilter);
  };
  start_script(2, "[ $RANK = 0 ] && exec sleep 600; exit 3");
  const int code = wait();
  if (code == kNoFilter) GTEST_SKIP() << "this system has no filters of calls";
  EXPECT_EQ(code, 3) << err();
  const std::string text = err(), line = "lets no process adopt orphans (PR_SET_CHILD_SUBREAPER";
  EXPECT_THAT(text, HasSubstr(line));
  EXPECT_EQ(text.find(line), text.rfind(line)) << text;
  EXPECT_TRUE(all_gone_within(1min));
}

TEST_F(LaunchTest, ForwardsSignalsToEveryRank) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    start_script(2,
                 "for s in TERM INT HUP; do trap \"echo $s >> $DIR/got$RANK; exit 0\" $s; done; "
                 "echo x > $DIR/ready$RANK; while :; do sleep 0.05; done");
    wait_for_files({"ready0", "ready1"});
    ::kill(launcher_, number);
    EXPECT_EQ(wait(), 128 + number) << err();
    std::filesystem::remove(folder_ / "ready0");
    std::filesystem::remove(folder_ / "ready1");
  }
  EXPECT_EQ(file("got0"), "TERM\nINT\nHUP\n");
  EXPECT_EQ(file("got1"), "TERM\nINT\nHUP\n");
}

TEST_F(LaunchTest, GivesRanksThatCatchASignalTheirTimeToSave) {
  variables_ = {{"DS_STOP_GRACE", "10"}};
  start_script(2,
               "trap 'sleep 5; echo saved > $DIR/saved$RANK; exit 0' TERM; echo x > $DIR/ready$RANK; "
               "while :; do sleep 0.05; done");
  wait_for_files({"ready0", "ready1"});
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_EQ(file("saved0") + file("saved1"), "saved\nsaved\n") << err();
  EXPECT_THAT(err(), HasSubstr("rank 0 exit code 0, rank 1 exit code 0"));
}

TEST_F(LaunchTest, KillsWhatLivesLongerThanTheStopGrace) {
  start_script(2, "trap '' TERM; echo $$ > $DIR/pid$RANK; while :; do sleep 0.05; done",
               {"--stop_grace", "1"});
  wait_for_files({"pid0", "pid1"});
  const auto begin = Clock::now();
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_GT(Clock::now() - begin, 900ms);
  EXPECT_THAT(err(), HasSubstr("rank 0 SIGKILL, rank 1 SIGKILL"));
}

TEST_F(LaunchTest, RefusesAStopGraceThatIsNoNumberOfSeconds) {
  start_script(1, "true", {"--stop_grace", "0"});
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr("--stop_grace is 0"));
  variables_ = {{"DS_STOP_GRACE", "soon"}};
  start_script(1, "true");
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr("DS_STOP_GRACE is 'soon'"));
}

TEST_F(LaunchTest, KillsAtASecondSignal) {
  variables_ = {{"DS_STOP_GRACE", "600"}};  // longer than the test waits for the launcher
  start_script(2,
               "trap 'echo x > $DIR/got$RANK' TERM; echo $$ > $DIR/pid$RANK; while :; do sleep 0.05; done");
  wait_for_files({"pid0", "pid1"});
  ::kill(launcher_, SIGTERM);
  wait_for_files({"got0", "got1"});
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_TRUE(processes_left().empty());
}

TEST_F(LaunchTest, WritesOneLogARankAndShowsItsEndOnFailure) {
  const std::string logs = (folder_ / "logs/deep").string();
  start_script(2, "echo out$RANK; echo err$RANK >&2; exit $((RANK * 3))", {"--enable_each_rank_log", logs});
  EXPECT_EQ(wait(), 3);
  EXPECT_EQ(out(), "");
  EXPECT_THAT(err(), HasSubstr("  | out1\n  | err1\n"));
  int num_logs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(logs)) {
    const std::string name = entry.path().filename();
    ASSERT_EQ(name.size(), std::string("YYYYmmddHHMMSS_rank0.log").size()) << name;
    EXPECT_EQ(name.find_first_not_of("0123456789"), 14u) << name;
    const std::string rank = name.substr(19, 1);
    EXPECT_EQ(name.substr(14), "_rank" + rank + ".log");
    EXPECT_EQ(read_text(entry.path()), "out" + rank + "\nerr" + rank + "\n");
    ++num_logs;
  }
  EXPECT_EQ(num_logs, 2);
}

TEST_F(LaunchTest, KeepsItsProcessIdWhileRanksRun) {
  start_script(1, kStay, {"--save_pid"});
  wait_for_files({"parent0"});
  const std::string path = "/tmp/" + std::to_string(launcher_) + ".deepspeed";
  EXPECT_EQ(read_text(path), std::to_string(launcher_));
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(LaunchTest, SaysBeforeAnythingStartsThatTheProgramIsMissing) {
  start({"--num_procs", "2", "./no_such_program"});
  EXPECT_EQ(wait(), 127);
  EXPECT_THAT(err(), HasSubstr("'./no_such_program' not found"));
}

TEST_F(LaunchTest, GivesCodeTwoForAWrongCommandLine) {
  start({"--num_gpus", "1", "--include", "localhost:0", "/bin/true"});
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr("[error] [launcher] [launcher.args] --num_gpus and --include"));
}

TEST_F(LaunchTest, IsQuietButForErrorsWhenAsked) {
  start_script(2, "exit 4", {"--quiet"});
  EXPECT_EQ(wait(), 4);
  EXPECT_THAT(err(), HasSubstr("ended with exit code 4"));
  EXPECT_THAT(err(), Not(HasSubstr("[info]")));
}

TEST_F(LaunchTest, GoesOnWatchingWhileNobodyReadsItsErrors) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  stderr_fd_ = ends[1];
  // Rank 0 fills the pipe and waits for ever; rank 1 is killed meanwhile.
  start_script(2, "echo $$ > $DIR/pid$RANK; [ $RANK = 1 ] && exec sleep 60; exec cat /dev/zero >&2");
  wait_for_files({"pid0", "pid1"});
  std::this_thread::sleep_for(300ms);
  ::kill(pid_in("pid1"), SIGKILL);
  EXPECT_EQ(wait(), 128 + SIGKILL);
  EXPECT_TRUE(processes_left().empty());
  for (const int fd : {ends[0], ends[1]}) ::close(fd);
}

}  // namespace
}  // namespace deepspeed::launcher
