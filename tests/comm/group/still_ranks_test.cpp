// Ranks are stopped while others wait for them, and continue later.
#include "deepspeed/comm/group/still_ranks.h"

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/init.h"

#include "tests/comm/backends/shared_memory_switch.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::fork_ranks;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::join_world;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Collects log lines about ranks that do not run.
class StillLines {
 public:
  explicit StillLines(const std::string& part = "does not run") {
    log::set_sink([this, part](log::Level, const std::string& line) {
      const std::lock_guard lock(mutex_);
      if (line.find(part) != std::string::npos) lines_ += line + "\n";
    });
  }
  ~StillLines() { log::set_sink({}); }
  StillLines(const StillLines&) = delete;
  StillLines& operator=(const StillLines&) = delete;

  std::string text() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// Waits for a line, for at most a minute.
  void await() {
    for (const auto end = Clock::now() + 1min; text().empty() && Clock::now() < end;)
      std::this_thread::sleep_for(20ms);
  }

 private:
  std::mutex mutex_;
  std::string lines_;
};

/// Is a process that does nothing until it is destroyed. If `hung`, it is uninterruptible.
class IdleProcess {
 public:
  explicit IdleProcess(bool hung = false) : process_(::fork()) {
    if (process_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hung && ::vfork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) ::pause();
    }
    while (true) ::pause();
  }
  ~IdleProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;

  pid_t number() const { return process_; }
  void stop() const {
    ::kill(process_, SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED);
  }
  void go_on() const {
    ::kill(process_, SIGCONT);
    ::waitpid(process_, nullptr, WCONTINUED);
  }

 private:
  pid_t process_;
};

/// Checks rank 1, which is `process`, this many times.
void look_at(StillRanks& still, pid_t process, int num_looks) {
  const std::map<int, RankProcess> processes{{1, find_process(process).value()}};
  for (int i = 0; i < num_looks; ++i) still.look(processes, {{"all_reduce #3 of group 'world'", {0, 1, 2}}});
}

TEST(StillRanks, ThatAreStoppedAreNamedOnceWithWhatWaitsForThem) {
  StillLines lines;
  StillRanks still(0);
  const IdleProcess idle;
  look_at(still, idle.number(), 10);
  EXPECT_THAT(lines.text(), IsEmpty()) << "it runs";
  idle.stop();
  look_at(still, idle.number(), 1);
  EXPECT_THAT(lines.text(), IsEmpty()) << "it may go on at once";
  look_at(still, idle.number(), 10);
  const std::string expected = "rank 1 (process " + std::to_string(idle.number()) +
                               ") does not run: it is stopped (state T), until it is sent SIGCONT; rank 0 "
                               "waits for it in all_reduce #3 of group 'world'\n";
  EXPECT_THAT(lines.text(), ::testing::EndsWith(expected));
  const std::string once = lines.text();
  EXPECT_EQ(once.find("does not run"), once.rfind("does not run"));
  idle.go_on();
  still.look({}, {});  // nothing is awaited
  look_at(still, idle.number(), 10);
  EXPECT_EQ(lines.text(), once);
  idle.stop();
  look_at(still, idle.number(), 10);
  EXPECT_NE(lines.text(), once) << "it is stopped again";
}

TEST(StillRanks, ThatADiskDoesNotAnswerAreNamed) {
  StillLines lines("does not get on");
  StillRanks still(0);
  const IdleProcess idle(/*hung=*/true);
  const RankProcess process = find_process(idle.number()).value();
  for (const auto end = Clock::now() + 1min; motion_of(process).hung_threads.empty() && Clock::now() < end;)
    std::this_thread::sleep_for(1ms);
  look_at(still, idle.number(), 4);
  EXPECT_THAT(lines.text(), IsEmpty());
  look_at(still, idle.number(), 4);
  EXPECT_THAT(lines.text(), HasSubstr("(state D); rank 0 waits for it in all_reduce #3"));
}

TEST(StillRanks, MayBeTheOneOfAnotherMachineThatHoldsTheStore) {
  StillLines lines("does not answer");
  StillRanks still(1);
  still.look({}, {{"all_reduce #3 of group 'world'", {0, 1}}}, /*is_store_silent=*/true);
  still.look({}, {{"all_reduce #3 of group 'world'", {0, 1}}}, /*is_store_silent=*/true);
  EXPECT_THAT(lines.text(), ::testing::EndsWith("rank 1 waits in all_reduce #3 of group 'world'\n"));
  EXPECT_EQ(lines.text().find("the store"), lines.text().rfind("the store"));
}

/// Stops one of two ranks and continues it after the other has logged it. Returns that log.
std::string lines_where_one_stops(int stopping, const std::function<void(ProcessGroup& group)>& meet) {
  const auto outcomes = fork_ranks(2, [&](int rank) -> std::string {
    StillLines lines;
    auto world = join_world();
    ProcessGroup group = world.group();
    const double own = ::getpid(), other = group.all_reduce_scalar(own) - own;
    std::this_thread::sleep_for(3s);  // a job runs for a while before it is stopped
    group.barrier();
    if (rank == stopping) ::raise(SIGSTOP);
    std::thread sends_on([&] {
      if (rank == stopping) return;
      lines.await();
      ::kill(static_cast<pid_t>(other), SIGCONT);
    });
    meet(group);
    sends_on.join();
    EXPECT_EQ(group.all_reduce_scalar(rank + 1.0), 3.0);
    world.shutdown();
    return lines.text();
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
  EXPECT_THAT(outcomes[static_cast<size_t>(stopping)].value, IsEmpty());
  return outcomes[static_cast<size_t>(1 - stopping)].value;
}

TEST(StillRanks, AreNamedWhileTheOthersWaitAndTheJobGoesOn) {
  for (const bool with_shared_memory : {true, false}) {
    const SharedMemorySwitch is_on(with_shared_memory);
    for (const int stopping : {0, 1}) {  // rank 0 holds the store
      const std::string lines = lines_where_one_stops(stopping, [](ProcessGroup& group) {
        const at::Tensor sum = at::ones({1000});
        group.all_reduce(sum);
        EXPECT_EQ(sum.sum().item<double>(), 2000.0);
      });
      EXPECT_THAT(lines, AllOf(HasSubstr("rank " + std::to_string(stopping) + " (process "),
                               HasSubstr("it is stopped (state T)"),
                               HasSubstr("waits for it in all_reduce #"), HasSubstr("of group 'world'")))
          << with_shared_memory;
    }
  }
}

// Neither rank sees the other's process.
TEST(StillRanks, OfOtherMachinesAreNamedBySilence) {
  const auto outcomes = fork_ranks(2, [](int rank) -> std::string {
    StillLines lines("no sign of life");
    env::set("LOCAL_RANK", std::string("0"));
    env::set("LOCAL_SIZE", std::string("1"));
    env::set("DEEPSPEED_LISTEN_ADDR", std::string("127.0.0.1"));
    auto world = join_world();
    ProcessGroup group = world.group();
    const double own = ::getpid(), other = group.all_reduce_scalar(own) - own;
    if (rank == 1) std::this_thread::sleep_for(12s);  // it runs, however long the other one waits
    group.barrier();
    EXPECT_THAT(lines.text(), IsEmpty());
    std::this_thread::sleep_for(3s);
    if (rank == 1) ::raise(SIGSTOP);
    std::thread sends_on([&] {
      if (rank == 1) return;
      lines.await();
      ::kill(static_cast<pid_t>(other), SIGCONT);
    });
    EXPECT_EQ(group.all_reduce_scalar(rank + 1.0), 3.0);
    sends_on.join();
    world.shutdown();
    return lines.text();
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
  EXPECT_THAT(outcomes[1].value, IsEmpty());
  EXPECT_THAT(outcomes[0].value,
              AllOf(HasSubstr("rank 1 has shown no sign of life for a while: its process is "
                              "stopped, or its machine hangs or cannot be reached; rank 0 "
                              "waits for it in all_reduce #"),
                    HasSubstr("of group 'world'")));
}

TEST(StillRanks, ThatAMessageIsAwaitedFromAreNamed) {
  for (const bool with_shared_memory : {true, false}) {
    const SharedMemorySwitch is_on(with_shared_memory);
    const std::string lines = lines_where_one_stops(1, [](ProcessGroup& group) {
      const at::Tensor tensor = at::full({1000}, group.rank() * 5.0);
      if (group.rank() == 1) {
        group.send(tensor, 0);
      } else {
        group.recv(tensor, 1);
      }
      EXPECT_EQ(tensor.sum().item<double>(), 5000.0);
    });
    EXPECT_THAT(lines, HasSubstr("rank 0 waits for it in recv from rank 1 of group 'world'"));
  }
}

}  // namespace
}  // namespace deepspeed::comm
