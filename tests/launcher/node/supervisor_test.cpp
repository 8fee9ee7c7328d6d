// Signals that end nothing, and ranks that cannot be started.
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/launcher/node/launch_fixture.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class SupervisorTest : public LaunchTest {
 protected:
  /// Waits until the kernel shows that state of the process ('T' is stopped); the state that it showed last.
  static char state_within(pid_t pid, char wanted, std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
      const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
      const size_t name_end = stat.rfind(')');
      const char state = name_end == std::string::npos ? '?' : stat[name_end + 2];
      if (state == wanted || Clock::now() > deadline) return state;
      ::usleep(5000);
    }
  }
};

TEST_F(SupervisorTest, StopsAllRanksAtCtrlZAndLetsThemGoOn) {
  // The ranks start no process while they wait: a shell whose child is stopped between vfork() and exec() is
  // never shown as stopped itself.
  start_script(2, "echo $$ > $DIR/pid$RANK; while [ ! -e $DIR/end ]; do :; done; echo x > $DIR/done$RANK");
  wait_for_files({"pid0", "pid1"});
  ::kill(launcher_, SIGTSTP);
  for (const pid_t pid : {launcher_, pid_in("pid0"), pid_in("pid1")}) {
    EXPECT_EQ(state_within(pid, 'T', 1min), 'T') << "process " << pid << " of launcher " << launcher_;
  }
  std::ofstream(folder_ / "end") << "x";
  ::kill(launcher_, SIGCONT);
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("done0") + file("done1"), "x\nx\n");
}

TEST_F(SupervisorTest, PassesTheUsersSignalsToTheRanksAndGoesOn) {
  start_script(2,
               "trap 'echo USR1 >> $DIR/got$RANK' USR1; trap 'echo USR2 >> $DIR/got$RANK; exit 0' USR2; "
               "echo x > $DIR/ready$RANK; while :; do sleep 0.05; done");
  wait_for_files({"ready0", "ready1"});
  ::kill(launcher_, SIGUSR1);
  wait_for_files({"got0", "got1"});
  ::kill(launcher_, SIGUSR2);
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("got0"), "USR1\nUSR2\n");
  EXPECT_EQ(file("got1"), "USR1\nUSR2\n");
}

TEST_F(SupervisorTest, SaysWhichRankCannotBeStartedAndWhy) {
  const std::string program = write_script("broken", "");
  std::ofstream(program) << "\x7f"
                         << "ELF of no machine";
  start({"--num_procs", "2", program});
  EXPECT_EQ(wait(), 126);  // as a shell says it
  EXPECT_THAT(err(),
              ContainsRegex("rank 0: executing the program \\(.*/broken\\) failed: Exec format error"));
  EXPECT_TRUE(processes_left().empty());
}

TEST_F(SupervisorTest, SaysThatTheFolderOfTheLogsCannotBeMade) {
  std::ofstream(folder_ / "file") << "x";
  start_script(1, "echo x > $DIR/ran", {"--enable_each_rank_log", (folder_ / "file/logs").string()});
  EXPECT_EQ(wait(), 1);
  EXPECT_THAT(err(), HasSubstr("--enable_each_rank_log: cannot make the folder " +
                               (folder_ / "file/logs").string() + ": Not a directory"));
  EXPECT_EQ(file("ran"), "");
}

TEST_F(SupervisorTest, WarnsOfAHostfileThatIsMissingAndUsesThisMachine) {
  start_script(1, "echo x > $DIR/ran", {"-q", "--hostfile", (folder_ / "hosts").string()});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_THAT(err(), HasSubstr("--hostfile " + (folder_ / "hosts").string() +
                               " does not exist; this machine alone is used"));
  EXPECT_EQ(file("ran"), "x\n");
}

TEST_F(SupervisorTest, RunsTheSlotsOfAHostfileAndSaysMoreWhenAsked) {
  std::ofstream(folder_ / "hosts") << "localhost slots=2\n";
  start({"--hostfile", (folder_ / "hosts").string(), "--log_level", "debug", "/bin/sh", "-c",
         "echo $WORLD_SIZE > $DIR/rank$RANK"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("rank0") + file("rank1"), "2\n2\n");
  EXPECT_THAT(err(), ContainsRegex("\\[debug\\] .*rank 1 is process [0-9]+"));
}

TEST_F(SupervisorTest, PrintsHelpAndStartsNothing) {
  start({"--help"});
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(out(), HasSubstr("--num_gpus"));
  EXPECT_EQ(err(), "");
}

}  // namespace
}  // namespace deepspeed::launcher
