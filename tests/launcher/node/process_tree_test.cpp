// Processes are found and ended from outside, also those that hang.
#include "deepspeed/launcher/node/process_tree.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deepspeed::launcher {
namespace {

/// Starts a process that starts another one, which starts another one, and all of them stop.
pid_t start_tree() {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::fork() == 0) static_cast<void>(::fork());
    static_cast<void>(!::write(ready[1], "x", 1));
    for (;;) ::raise(SIGSTOP);
  }
  char byte = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  for (const int end : ready) ::close(end);
  return pid;
}

TEST(ProcessTree, IsKilledFromOutsideThoughItHangs) {
  const pid_t pid = start_tree();
  const std::string name = process_name(pid);
  EXPECT_EQ(name.substr(0, name.find(':')), std::to_string(pid));
  const auto below = descendants_of(pid);
  EXPECT_EQ(below.size(), 2u);
  EXPECT_TRUE(kill_process_tree(name, std::chrono::seconds(60)));
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  for (const ProcessEntry& process : below) EXPECT_EQ(process_name(process.pid), "") << process.pid;
}

TEST(ProcessTree, LeavesAProcessAloneThatHasTheNumberOfAnother) {
  const pid_t pid = start_tree();
  const std::string number = std::to_string(pid);
  for (const std::string& name : {number + ":1", number, number + ":", std::string(), std::string("x:1"),
                                  "-" + process_name(pid), std::string("0:0")})
    EXPECT_TRUE(kill_process_tree(name, std::chrono::seconds(60))) << name;
  EXPECT_NE(process_name(pid), "");
  EXPECT_TRUE(kill_process_tree(process_name(pid), std::chrono::seconds(60)));
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(process_name(pid), "");
}

}  // namespace
}  // namespace deepspeed::launcher
