// What a journal keeps, what it refuses, and what a damaged or cut file brings.
#include "deepspeed/trial/search/journal.h"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::trial {
namespace {

using ::testing::IsEmpty;

std::string bytes_of(const std::filesystem::path& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file, std::ios::binary).rdbuf();
  return bytes.str();
}

std::vector<Json> some_entries() {
  return {{{"event", "report"}, {"trial", 0}, {"metric", 0.1}},
          {{"event", "failure"}, {"trial", 1}},
          {{"text", "a\nb\"\\ \xc3\xa9"}}};
}

/// Begins a journal with some entries. Returns its bytes.
std::string written_journal(const std::filesystem::path& file) {
  Journal journal(file, "digest", 7);
  for (const Json& entry : some_entries()) journal.append(entry);
  return bytes_of(file);
}

std::vector<Json> entries_of(const std::filesystem::path& file) {
  return Journal(file, "digest", 7).entries();
}

TEST(Journal, ReturnsItsEntriesWhenOpenedAgain) {
  const testing::TemporaryFolder folder;
  {
    Journal journal(folder / "j", "digest", 7);
    EXPECT_THAT(journal.entries(), IsEmpty());
    journal.append(some_entries()[0]);
  }
  {
    Journal journal(folder / "j", "digest", 7);
    EXPECT_EQ(journal.entries().size(), 1u);
    journal.append(some_entries()[1]);
    journal.append(some_entries()[2]);
  }
  EXPECT_EQ(entries_of(folder / "j"), some_entries());
}

TEST(Journal, HasOneJsonValueALine) {
  const testing::TemporaryFolder folder;
  std::istringstream lines(written_journal(folder / "j"));
  std::vector<Json> found;
  for (std::string line; std::getline(lines, line);) found.push_back(Json::parse(line)["entry"]);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(
      found[0],
      (Json{{"format", "deepspeed trial journal"}, {"version", 1}, {"experiment", "digest"}, {"seed", 7}}));
  EXPECT_EQ(found[3], some_entries()[2]);
}

TEST(Journal, DropsALastLineThatIsCutOff) {
  const testing::TemporaryFolder folder;
  const std::string whole = written_journal(folder / "whole");
  for (size_t size = 0; size <= whole.size(); ++size) {
    const auto file = folder.write("cut", whole.substr(0, size));
    const auto lines = size_t(std::ranges::count(whole.substr(0, size), '\n'));
    std::vector<Json> expected = some_entries();
    expected.resize(lines == 0 ? 0 : lines - 1);
    {
      Journal journal(file, "digest", 7);
      ASSERT_EQ(journal.entries(), expected) << size;
      journal.append({{"after", size}});
    }
    expected.push_back({{"after", size}});
    ASSERT_EQ(entries_of(file), expected) << size;
  }
}

TEST(Journal, NoticesEachFlippedBit) {
  const testing::TemporaryFolder folder;
  const std::string whole = written_journal(folder / "whole");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 1, 3, 5, 7}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      const auto file = folder.write("flipped", bytes);
      const auto line = std::ranges::count(whole.substr(0, at), '\n') + 1;
      const std::string text = testing::error_of<Error>([&] { entries_of(file); });
      ASSERT_THAT(text, ::testing::ContainsRegex("flipped\" line " + std::to_string(line) + "[ :]"))
          << at << " " << bit;
      ASSERT_EQ(bytes_of(file), bytes) << "it was changed";
    }
  }
}

TEST(Journal, NoticesALineThatIsMissingOrTwice) {
  const testing::TemporaryFolder folder;
  const std::string whole = written_journal(folder / "whole");
  const size_t first = whole.find('\n') + 1, second = whole.find('\n', first) + 1;
  EXPECT_ERROR(IoError, entries_of(folder.write("a", whole.substr(0, first) + whole.substr(second))),
               "a\" line 2", "wrong checksum", "restore it from a copy");
  EXPECT_ERROR(IoError, entries_of(folder.write("b", whole.substr(0, second) + whole.substr(first))),
               "b\" line 3");
}

TEST(Journal, RefusesAnotherExperimentSeedAndVersion) {
  const testing::TemporaryFolder folder;
  const auto file = folder / "j";
  written_journal(file);
  EXPECT_ERROR(UsageError, Journal(file, "other", 7), "j\" line 1", "another experiment, \"digest\"",
               "expected \"other\"", "use another folder");
  EXPECT_ERROR(UsageError, Journal(file, "digest", 8), "the seed 7, got 8", "use another folder");
  EXPECT_EQ(entries_of(file).size(), 3u);
}

TEST(Journal, LeavesOtherFilesAsTheyAre) {
  const testing::TemporaryFolder folder;
  for (const char* bytes : {"my thesis", "my thesis\n", "{}\n", "{\"a\":1}"}) {
    const auto file = folder.write("j", bytes);
    EXPECT_ERROR(UsageError, entries_of(file), "j\" line 1", "got no beginning of a journal");
    EXPECT_EQ(bytes_of(file), bytes);
  }
}

TEST(Journal, FollowsNoLinkAndOpensNothingButFiles) {
  const testing::TemporaryFolder folder;
  folder.write("target", "");
  std::filesystem::create_symlink(folder / "target", folder / "link");
  std::filesystem::create_symlink(folder / "nothing", folder / "dangling");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_ERROR(IoError, entries_of(folder / "link"), "link", "is a symbolic link, which is not followed");
  EXPECT_ERROR(IoError, entries_of(folder / "dangling"), "is a symbolic link");
  EXPECT_ERROR(IoError, entries_of(folder / "fifo"), "is no regular file");
  EXPECT_ERROR(IoError, entries_of(folder.path()), "cannot open the journal");
  EXPECT_ERROR(IoError, entries_of(folder / "no" / "folder"), "cannot open the journal", "No such file");
  EXPECT_EQ(bytes_of(folder / "target"), "");
}

TEST(Journal, RefusesAnotherUsersFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user of the machine";
  const testing::TemporaryFolder folder;
  const auto file = folder.write("j", "");
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_ERROR(IoError, entries_of(file), "belongs to another user (uid 12345)", "use another folder");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Journal, HasOneWriterAtATime) {
  const testing::TemporaryFolder folder;
  const auto file = folder / "j";
  {
    Journal journal(file, "digest", 7);
    EXPECT_ERROR(IoError, entries_of(file), "j\" is in use by another process", "use another folder");
    // Another process is told the same.
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string text = testing::error_of<IoError>([&] { entries_of(file); });
      ::_exit(text.find("in use by another process") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    journal.append({{"a", 1}});
  }
  EXPECT_EQ(entries_of(file), (std::vector<Json>{{{"a", 1}}}));
}

TEST(Journal, TakesAFailedLineBack) {
  const testing::TemporaryFolder folder;
  const auto file = folder / "j";
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  {
    Journal journal(file, "digest", 7);
    journal.append({{"a", 1}});
    const std::string before = bytes_of(file);
    rlimit small = former;
    small.rlim_cur = before.size() + 30;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_ERROR(IoError, journal.append({{"b", 2}}), "cannot write the journal", "File too large");
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &former), 0);
    EXPECT_EQ(bytes_of(file), before);
    journal.append({{"c", 3}});
  }
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(entries_of(file), (std::vector<Json>{{{"a", 1}}, {{"c", 3}}}));
}

}  // namespace
}  // namespace deepspeed::trial
