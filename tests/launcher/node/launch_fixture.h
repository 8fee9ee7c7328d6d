// Runs the launcher in a process of its own, with /bin/sh scripts as ranks.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/types.h>

namespace deepspeed::launcher {

/// Reads a whole file; no text where it is missing.
std::string read_text(const std::filesystem::path& path);

class LaunchTest : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  void SetUp() override;
  void TearDown() override;

  /// Starts `deepspeed words...`. Its output goes to files; processes below it carry a variable that finds
  /// them again, and $DIR names the test's folder.
  void start(const std::vector<std::string>& words);
  /// start with `--num_procs N /bin/sh -c script`.
  void start_script(int num_procs, const std::string& script, const std::vector<std::string>& flags = {});

  /// The launcher's exit code, or -signal; fails the test and kills it after two minutes.
  int wait();

  /// Waits until each of these files stands in the folder.
  void wait_for_files(const std::vector<std::string>& names);

  /// Processes that the launch has started and that still live.
  std::vector<pid_t> processes_left() const;
  /// Waits until there are none, at most `patience`. False where some are left.
  bool all_gone_within(std::chrono::milliseconds patience) const;
  /// Waits until that process has ended, at most `patience`. False where it lives on.
  static bool ended_within(pid_t pid, std::chrono::milliseconds patience);

  std::string out() const { return read_text(folder_ / "stdout"); }
  /// Without the line that says that another job of the machine has the default port.
  std::string err() const;
  std::string file(const std::string& name) const { return read_text(folder_ / name); }
  pid_t pid_in(const std::string& name) const { return std::stoi(file(name)); }

  /// Writes an executable shell script into the test's folder; gives its path.
  std::string write_script(const std::string& name, const std::string& text) const;

  std::filesystem::path folder_;
  std::filesystem::path working_folder_;          ///< of the launcher; empty: the test's own
  std::map<std::string, std::string> variables_;  ///< further ones that the launcher starts with
  std::function<void()> prepare_;                 ///< what the launcher's process does first
  std::string marker_;
  pid_t launcher_ = 0;
  int stderr_fd_ = -1;  ///< where the launcher's errors go in place of the file
};

}  // namespace deepspeed::launcher
