// Processes beside the ranks are read until they have ended, whatever they leave behind.
#include "deepspeed/launcher/node/child.h"

#include <csignal>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/node/process_tree.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kEnough = std::chrono::seconds(300);

Child start_shell(const std::string& line) {
  return start_child({"/bin/sh", "-c", line}, current_environment(), true, SIGKILL, current_signals());
}

TEST(Child, GetsWordsAndVariablesAsTheyAre) {
  Environment environment = {{"EMPTY", ""}, {"ODD", "a=b\n'c' $d"}};
  Child child =
      start_child({"/bin/sh", "-c", "printf '%s|' \"$0\" \"$@\" \"$EMPTY\" \"$ODD\"", "zero", "", "a  b"},
                  environment, true, SIGKILL, current_signals());
  EXPECT_EQ(finish_child(std::move(child), kEnough), std::pair(std::string("zero||a  b||a=b\n'c' $d|"), 0));
}

TEST(Child, IsReadWholeAndGivesItsStatus) {
  Child child = start_shell("head -c 300000 /dev/zero; exit 3");
  const auto [output, status] = finish_child(std::move(child), kEnough);
  EXPECT_EQ(output.size(), 300000u);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

TEST(Child, IsNotWaitedForByThePipeThatItLeavesToAnother) {
  Child child = start_shell("sleep 600 & echo $!");
  const auto [output, status] = finish_child(std::move(child), kEnough);
  EXPECT_EQ(status, 0);
  const pid_t sleeper = std::stoi(output);
  EXPECT_NE(process_name(sleeper), "") << "the sleeper ends the pipe";
  ::kill(sleeper, SIGKILL);
}

TEST(Child, MayCloseItsOutputBeforeItEnds) {
  Child child = start_shell("echo a; exec >&-; sleep 0.2; exit 4");
  const auto [output, status] = finish_child(std::move(child), kEnough);
  EXPECT_EQ(output, "a\n");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

TEST(Child, IsKilledWithWhatItHasStartedOnceItIsLate) {
  Child child = start_shell("sleep 600 & echo $!; wait");
  const pid_t pid = child.pid;
  const auto [output, status] = finish_child(std::move(child), std::chrono::milliseconds(500));
  EXPECT_EQ(status, -1);
  EXPECT_EQ(process_name(pid), "");
  // An orphan's status is collected by another process a moment later.
  if (!output.empty()) {
    const pid_t sleeper = std::stoi(output);
    while (process_name(sleeper) != "") ::usleep(1000);
  }
}

TEST(SignalName, MatchesTheShells) {
  // Shells do not agree on two of them.
  Child child = start_shell("for i in $(seq 31); do case $i in 16 | 29) ;; *) kill -l $i ;; esac; done");
  std::string names;
  for (int signal = 1; signal <= 31; ++signal) {
    if (signal != SIGSTKFLT && signal != SIGPOLL) names += signal_name(signal).substr(3) + "\n";
  }
  EXPECT_EQ(finish_child(std::move(child), kEnough), std::pair(names, 0));
  EXPECT_EQ(signal_name(SIGPOLL), "SIGPOLL");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(signal_name(1000), "signal 1000");
}

// pdsh starts each ssh in a process group of its own, and does not outlive a signal long enough to end it.
TEST(EndChildren, LeavesNothingBelowThemInWhateverGroup) {
  Child child =
      start_child({"/bin/sh", "-c", "setsid /bin/sh -c 'trap \"\" TERM; echo $$; sleep 1000' & wait"},
                  current_environment(), true, SIGKILL, current_signals());
  std::string line;
  for (char letter = 0; ::read(child.output.get(), &letter, 1) == 1 && letter != '\n';) line += letter;
  const std::string name = process_name(std::stoi(line));
  ASSERT_NE(name, "");
  end_children({child.pid}, std::chrono::seconds(1));
  EXPECT_NE(process_name(std::stoi(line)), name);
  EXPECT_NE(::kill(child.pid, 0), 0);
}

}  // namespace
}  // namespace deepspeed::launcher
