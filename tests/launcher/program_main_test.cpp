#include "deepspeed/launcher/program_main.h"

#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/exit_code.h"

namespace deepspeed::launcher {
namespace {

using ::testing::HasSubstr;

struct ProgramEnd {
  std::optional<int> status;
  std::string out, err;
};

/// A program with one argument that it needs and one number.
ProgramEnd end_of(std::vector<const char*> words) {
  CLI::App app("A program");
  std::string folder;
  int workers = 0;
  app.add_option("folder", folder, "The folder")->required();
  app.add_option("--workers", workers, "Threads")->check(CLI::PositiveNumber);
  words.insert(words.begin(), "program");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto status = exit_of_command_line(app, static_cast<int>(words.size()), words.data());
  const std::string out = ::testing::internal::GetCapturedStdout();
  return {status, out, ::testing::internal::GetCapturedStderr()};
}

TEST(ProgramMain, GoesOnWithArgumentsThatItCanTake) {
  EXPECT_EQ(end_of({"run", "--workers", "2"}).status, std::nullopt);
}

TEST(ProgramMain, EndsWithZeroIfHelpIsAskedFor) {
  const ProgramEnd help = end_of({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("--workers"));
  EXPECT_EQ(help.err, "");
}

TEST(ProgramMain, EndsWithTwoIfAnArgumentIsMissingUnknownOrWrong) {
  for (const auto& [words, reason] : std::vector<std::pair<std::vector<const char*>, const char*>>{
           {{}, "folder is required"},
           {{"run", "--werkers", "2"}, "--werkers"},
           {{"run", "another"}, "another"},
           {{"run", "--workers", "0"}, "--workers"},
           {{"run", "--workers", "many"}, "many"}}) {
    const ProgramEnd ended = end_of(words);
    EXPECT_EQ(ended.status, 2) << reason;
    EXPECT_THAT(ended.err, HasSubstr(reason));
    EXPECT_EQ(ended.out, "");
  }
}

TEST(ProgramMain, ListsTheCommandsOfAProgramThatNeedsOne) {
  CLI::App app("A program", "program");
  app.require_subcommand(1);
  app.add_subcommand("config");
  app.add_subcommand("env");
  const std::vector<const char*> words = {"program", "confg", "--file"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(exit_of_command_line(app, static_cast<int>(words.size()), words.data()), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "program: unknown command 'confg', expected one of config, env\n");
}

TEST(ProgramMain, TellsAFaultOfTheArgumentsFromAnother) {
  const auto status_of = [](const std::function<void()>& work, const char* expected) {
    ::testing::internal::CaptureStderr();
    const int status = exit_of_work("program", work);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), expected);
    return status;
  };
  EXPECT_EQ(status_of([] {}, ""), 0);
  EXPECT_EQ(status_of([] { raise<UsageError>("no such size"); },
                      "program: [launcher.program_main_test] no such size\n"),
            2);
  EXPECT_EQ(
      status_of([] { raise<IoError>("disk full"); }, "program: [launcher.program_main_test] disk full\n"), 1);
  EXPECT_EQ(status_of([] { raise<NotSupportedError>("no such feature"); },
                      "program: [launcher.program_main_test] no such feature\n"),
            2);
  EXPECT_EQ(status_of([] { throw ProgramError("no such program", 127); }, "program: no such program\n"), 127);
  EXPECT_EQ(status_of([] { throw std::runtime_error("else"); }, "program: else\n"), 1);
}

}  // namespace
}  // namespace deepspeed::launcher
