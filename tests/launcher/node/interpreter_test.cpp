#include "deepspeed/launcher/node/interpreter.h"

#include <csignal>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::launcher {
namespace {

class InterpreterTest : public ::testing::Test {
 protected:
  std::string script(const std::string& text) const {
    const auto path = folder_.write("script", text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  Environment source(const std::string& text, std::chrono::seconds patience = kOutputPatience) const {
    return source_script(script(text), {{"PATH", "/usr/bin:/bin"}, {"GIVEN", "old"}}, current_signals(),
                         patience);
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(InterpreterTest, TakesTheVariablesThatAScriptLeaves) {
  const Environment left =
      source("echo output\nGIVEN=new\nexport MORE='two\nlines = 2'\nunset PATH\nSHELLS=1\n");
  EXPECT_EQ(left.at("GIVEN"), "new");
  EXPECT_EQ(left.at("MORE"), "two\nlines = 2");
  for (const char* name : {"PATH", "SHELLS", "_", "SHLVL"}) EXPECT_FALSE(left.contains(name)) << name;
}

TEST_F(InterpreterTest, DoesNotWaitForWhatAScriptLeavesBehind) {
  const Environment left = source("sleep 600 &\nexport SLEEPER=$!\n");
  ::kill(std::stoi(left.at("SLEEPER")), SIGKILL);
}

TEST_F(InterpreterTest, NamesAScriptThatFailsOrDoesNotEnd) {
  EXPECT_ERROR(UsageError, source("false\n"), "--venv_script: sourcing '", "failed");
  EXPECT_ERROR(UsageError, source("sleep 600\n", std::chrono::seconds(1)), "--venv_script: sourcing '",
               "has not ended within 1 s");
  EXPECT_ERROR(UsageError, source_script("/no/script", {}, current_signals()), "--venv_script: '/no/script'");
}

TEST_F(InterpreterTest, AsksAnInterpreterForItsVersion) {
  const auto version = [&](const std::string& text, std::chrono::seconds patience = kOutputPatience) {
    return python_version(script("#!/bin/sh\n" + text), {}, current_signals(), patience);
  };
  EXPECT_EQ(version("echo Python 3.11.7 $1; echo more"), "Python 3.11.7 --version");
  EXPECT_EQ(version("exit 1"), "");
  EXPECT_ERROR(UsageError, version("sleep 600", std::chrono::seconds(1)), "the interpreter ",
               "has not answered --version within 1 s", "PYTHON");
}

}  // namespace
}  // namespace deepspeed::launcher
