#include "tests/launcher/node/launch_fixture.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/command.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void redirect_to_file(int fd, const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, fd);
  ::close(file);
}

bool is_alive(const fs::path& process) {
  const std::string stat = read_text(process / "stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
}

}  // namespace

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void LaunchTest::SetUp() {
  static int number = 0;
  marker_ = "LAUNCH_TEST_MARKER=" + std::to_string(::getpid()) + "_" + std::to_string(++number);
  folder_ = fs::temp_directory_path() /
            ("launch_test_" + std::to_string(::getpid()) + "_" + std::to_string(number));
  fs::create_directories(folder_);
}

void LaunchTest::TearDown() {
  if (launcher_ > 0) {
    ::kill(launcher_, SIGKILL);
    ::waitpid(launcher_, nullptr, 0);
  }
  for (const pid_t pid : processes_left()) ::kill(pid, SIGKILL);
  fs::remove_all(folder_);
}

void LaunchTest::start(const std::vector<std::string>& words) {
  std::fflush(nullptr);  // else the child writes what the test has printed so far, too
  launcher_ = ::fork();
  ASSERT_GE(launcher_, 0);
  if (launcher_ > 0) return;
  ::setpgid(0, 0);
  // Whatever the test's own parent ignores: these tests send them.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) ::signal(number, SIG_DFL);
  redirect_to_file(STDOUT_FILENO, folder_ / "stdout");
  redirect_to_file(STDERR_FILENO, folder_ / "stderr");
  if (stderr_fd_ >= 0) ::dup2(stderr_fd_, STDERR_FILENO);
  const size_t equals = marker_.find('=');
  env::set(marker_.substr(0, equals).c_str(), marker_.substr(equals + 1));
  env::set("DIR", folder_.string());
  env::set("OMP_NUM_THREADS", std::nullopt);
  env::set("CUDA_VISIBLE_DEVICES", "");  // ranks on the CPU wherever the test runs
  env::set("HOME", folder_.string());    // no file of the user's own variables
  for (const char* name : {"PYTHON", "DS_ENV_FILE"}) env::set(name, std::nullopt);
  for (const auto& [name, value] : variables_) env::set(name.c_str(), value);
  if (!working_folder_.empty()) fs::current_path(working_folder_);
  if (prepare_) prepare_();
  ::_exit(run_command(words));
}

std::string LaunchTest::write_script(const std::string& name, const std::string& text) const {
  const fs::path path = folder_ / name;
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add);
  return path;
}

void LaunchTest::start_script(int num_procs, const std::string& script,
                              const std::vector<std::string>& flags) {
  std::vector<std::string> words = flags;
  for (const char* word : {"--num_procs", "", "/bin/sh", "-c", ""}) words.emplace_back(word);
  words[words.size() - 4] = std::to_string(num_procs);
  words.back() = script;
  start(words);
}

int LaunchTest::wait() {
  const auto deadline = Clock::now() + 2min;
  int status = 0;
  while (::waitpid(launcher_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "the launcher does not end; its errors:\n" << err();
      ::kill(launcher_, SIGKILL);
    }
    std::this_thread::sleep_for(5ms);
  }
  launcher_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void LaunchTest::wait_for_files(const std::vector<std::string>& names) {
  const auto deadline = Clock::now() + 2min;
  for (const std::string& name : names) {
    while (file(name).empty()) {
      ASSERT_LT(Clock::now(), deadline) << name << " does not come; the launcher's errors:\n" << err();
      std::this_thread::sleep_for(5ms);
    }
  }
}

std::vector<pid_t> LaunchTest::processes_left() const {
  std::vector<pid_t> left;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const auto pid = parse_whole_number(process.path().filename().string());
    if (!pid || read_text(process.path() / "environ").find(marker_) == std::string::npos) continue;
    if (is_alive(process.path())) left.push_back(*pid);
  }
  return left;
}

bool LaunchTest::all_gone_within(std::chrono::milliseconds patience) const {
  const auto deadline = Clock::now() + patience;
  while (!processes_left().empty()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

bool LaunchTest::ended_within(pid_t pid, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (is_alive(fs::path("/proc") / std::to_string(pid))) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

std::string LaunchTest::err() const {
  std::istringstream lines(read_text(folder_ / "stderr"));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool is_of_the_port = line.find(" is in use; the ranks meet at port ") != std::string::npos;
    if (!is_of_the_port) text += line + (lines.eof() ? "" : "\n");
  }
  return text;
}

}  // namespace deepspeed::launcher
