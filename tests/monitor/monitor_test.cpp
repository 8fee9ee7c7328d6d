// Scalars in CSV files, and what a monitor that fails does to a training.
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/monitor/csv_monitor.h"
#include "deepspeed/monitor/monitor_master.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::monitor {
namespace {

using ::deepspeed::testing::TemporaryFolder;

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class Collected : public Monitor {
 public:
  void write_events(const std::vector<Event>& events) override {
    for (const Event& event : events) names.push_back(event.name);
  }
  std::vector<std::string> names;
};

class Failing : public Monitor {
 public:
  void write_events(const std::vector<Event>&) override {
    ++calls;
    raise<IoError>("the disk is full");
  }
  int calls = 0;
};

TEST(CsvMonitor, AppendsToAFileOfTheName) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    CsvMonitor monitor(folder.path() / "deep" / "job");
    monitor.write_events({{"Train/Samples/lr", 0.001, 8}, {"my loss", 2.5, 8}});
    monitor.write_events({{"Train/Samples/lr", 1.0 / 3, 16}, {"Train/Samples/lr", 1e-7, 24}});
  }
  const std::string once = "8,0.001\n16,0.3333333333333333\n24,1e-07\n";
  EXPECT_EQ(text_of(folder.path() / "deep/job/Train_Samples_lr.csv"), "step,lr\n" + once + once);
  EXPECT_EQ(text_of(folder.path() / "deep/job/my_loss.csv"), "step,my loss\n8,2.5\n8,2.5\n");
}

TEST(CsvMonitor, NamesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_ERROR(IoError, CsvMonitor(folder.path() / "file" / "job"), "cannot make the folder", "file/job");
  CsvMonitor monitor(folder.path() / "job");
  std::filesystem::create_directory(folder.path() / "job" / "a_b.csv");
  EXPECT_ERROR(IoError, monitor.write_events({{"a/b", 1.0, 1}}), "cannot write", "a_b.csv");
  std::filesystem::create_symlink("../file", folder.path() / "job" / "c.csv");
  EXPECT_ERROR(IoError, monitor.write_events({{"c", 1.0, 1}}), "c.csv", "a symbolic link");
  EXPECT_EQ(text_of(folder.path() / "file"), "x");
}

TEST(MonitorMaster, HandsEventsToAllOnTheRankThatWrites) {
  const auto first = std::make_shared<Collected>(), second = std::make_shared<Collected>();
  const auto failing = std::make_shared<Failing>();
  MonitorMaster master(/*is_writer=*/true), other(/*is_writer=*/false);
  EXPECT_FALSE(master.enabled());
  master.add(first);
  master.add(failing);
  master.add(second);
  other.add(first);
  EXPECT_TRUE(master.enabled());
  EXPECT_FALSE(other.enabled());
  master.write_events({{"a", 1, 1}});
  master.write_events({{"b", 1, 2}});
  other.write_events({{"c", 1, 2}});
  EXPECT_EQ(first->names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(second->names, first->names);
  EXPECT_EQ(failing->calls, 2);
  EXPECT_ERROR(UsageError, master.add(nullptr), "got null");
}

}  // namespace
}  // namespace deepspeed::monitor
