// Two jobs that save one tag at one moment: the second is told so, and the first saves. Two that save into
// one folder are told of each other.
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"

#include "tests/crash/saved_run.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TwoJobs, AreToldOfEachOtherIfTheySaveOneTag) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    std::optional<checkpoint::StagingLock> other;
    on_rank_0(world, [&] {
      other.emplace(checkpoint::begin_tag(folder.path(), "a"));
      folder.write(".a.saving/mp_rank_00_model_states.pt", "the other job writes it");
    });
    EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(folder.path(), {.tag = "a"}); }),
                AllOf(HasSubstr("'a'"), HasSubstr("another job"), ContainsRegex("process [0-9]+ on "),
                      HasSubstr("another tag")));
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre(".a.saving"));
    EXPECT_TRUE(fs::exists(folder / ".a.saving/mp_rank_00_model_states.pt"));
    engine->save_checkpoint(folder.path(), {.tag = "b"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre(".a.saving", "b", "latest"));
    on_rank_0(world, [&] { other.reset(); });  // its process has ended
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "b", "latest"));
    EXPECT_EQ(names_in(folder / "a").size(), 6u);  // model, two of each rank, manifest
  });
}

// Each save ends well or names the other job, and what it says is there.
TEST(TwoJobs, NeverLoseATagToEachOther) {
  const TemporaryFolder folder;
  std::vector<int> saved(2);
  const auto save_often = [&](size_t job) {
    const auto engine = make_saved_run({}, Json::object(), /*stage=*/0);
    for (int round = 0; round < 40; ++round) {
      const std::string error =
          error_of<IoError>([&] { engine->save_checkpoint(folder.path(), {.tag = "same"}); });
      if (error == "no error") {
        ++saved[job];
      } else {
        EXPECT_THAT(error, HasSubstr("another job"));
      }
    }
  };
  std::thread other(save_often, 1);
  save_often(0);
  other.join();
  EXPECT_GT(saved[0] + saved[1], 0);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "same"));
  EXPECT_FALSE(make_saved_run({}, Json::object(), 0)->load_checkpoint(folder.path()).path.empty());
}

TEST(TwoJobs, LockTheFolderWhateverItsName) {
  const TemporaryFolder folder;
  const auto lock = checkpoint::begin_tag(folder.path(), "a");
  const checkpoint::Folder staging(folder / ".a.saving");
  EXPECT_TRUE(checkpoint::StagingLock(staging).is_taken());
  fs::rename(folder / ".a.saving", folder / "a");
  EXPECT_TRUE(checkpoint::StagingLock(checkpoint::Folder(folder / "a")).is_taken());
  EXPECT_TRUE(checkpoint::Folder(folder.path()).has("a", staging));
  EXPECT_FALSE(checkpoint::Folder(folder.path()).has(".a.saving"));
}

/// Saves in a process of its own, which lives until `go_on` is there.
std::vector<RankOutcome> save_in_another_job(const fs::path& folder, const std::string& tag,
                                             const fs::path& has_saved, const fs::path& go_on) {
  return fork_ranks(1, [&](int) {
    const auto engine = make_saved_run({}, Json::object(), /*stage=*/0);
    engine->save_checkpoint(folder, {.tag = tag});
    std::ofstream(has_saved) << "saved";
    while (!fs::exists(go_on)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return "";
  });
}

TEST(TwoJobs, SeeEachOtherInOneFolderWhileTheyRun) {
  const TemporaryFolder folder, other;
  std::thread job([&] { save_in_another_job(folder.path(), "theirs", other / "saved", other / "go on"); });
  while (!fs::exists(other / "saved")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto outcome = fork_ranks(1, [&](int) {
    const auto engine = make_saved_run({}, {{"log_level", "warning"}}, /*stage=*/0);
    std::string lines;
    log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
    EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(folder.path(), {.tag = "theirs"}); }),
                AllOf(HasSubstr("'theirs'"), ContainsRegex("another job \\(process [0-9]+ on "),
                      HasSubstr("another folder")));
    EXPECT_EQ(lines, "");
    for (int save = 0; save < 2; ++save) engine->save_checkpoint(folder.path(), {.tag = "own"});
    EXPECT_THAT(lines, AllOf(ContainsRegex("another job \\(process [0-9]+ on "), HasSubstr("`latest`")));
    EXPECT_EQ(lines.find("another job"), lines.rfind("another job")) << "it is said once";
    log::set_sink({});
    return "";
  });
  EXPECT_TRUE(outcome.front().ok()) << (outcome.front().failures.empty() ? ""
                                                                         : outcome.front().failures.front());
  std::ofstream(other / "go on") << "now";
  job.join();
  const auto engine = make_saved_run({}, Json::object(), /*stage=*/0);
  engine->save_checkpoint(folder.path(), {.tag = "theirs"});  // whose job has ended
}

/// Saves nothing, but stands in the folder as a job that publishes `tag` while others wait for its lock.
std::vector<RankOutcome> publish_in_another_job(const fs::path& folder, const std::string& tag,
                                                const fs::path& has_begun, const fs::path& go_on) {
  return fork_ranks(1, [&](int) {
    const auto writer = checkpoint::FolderWriter::enter(folder);
    auto lock = checkpoint::begin_tag(folder, tag);
    std::ofstream(folder / ("." + tag + ".saving") / "mp_rank_00_model_states.pt") << "theirs";
    std::ofstream(has_begun) << "now";
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other one waits for the lock by then
    checkpoint::publish_tag(folder, tag);
    lock = {};
    while (!fs::exists(go_on)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return "";
  });
}

// The tag is not there when the second job looks first, and is when it has the lock.
TEST(TwoJobs, LookAtTheTagAgainOnceItIsLocked) {
  const TemporaryFolder folder, other;
  std::thread job([&] { publish_in_another_job(folder.path(), "a", other / "begun", other / "go on"); });
  while (!fs::exists(other / "begun")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto engine = make_saved_run({}, Json::object(), /*stage=*/0);
  EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(folder.path(), {.tag = "a"}); }),
              AllOf(HasSubstr("'a'"), HasSubstr("another job"), HasSubstr("under another tag")));
  EXPECT_THAT(names_in(folder / "a"), ElementsAre("mp_rank_00_model_states.pt")) << "theirs";
  std::ofstream(other / "go on") << "now";
  job.join();
}

TEST(TwoJobs, SeeATagThatCameMeanwhileThoughItsJobHasEnded) {
  const TemporaryFolder folder;
  const auto writer = checkpoint::FolderWriter::enter(folder.path());
  folder.write("replaced/mp_rank_00_model_states.pt", "of an earlier run");
  const std::string none = writer->check("came"), earlier = writer->check("replaced");
  EXPECT_NO_THROW(writer->check_again("came", none));
  EXPECT_NO_THROW(writer->check_again("replaced", earlier));
  fs::rename(folder / "replaced", folder / "moved");
  for (const char* tag : {"came", "replaced"}) {
    folder.write(std::string(tag) + "/mp_rank_00_model_states.pt", "theirs");
    EXPECT_ERROR(UsageError, writer->check_again(tag, tag == std::string("came") ? none : earlier),
                 std::string("the tag '") + tag + "'", "another job");
    writer->note_saved(tag);
    EXPECT_NO_THROW(writer->check_again(tag, none));
  }
}

// However a job ends, the next one finds nothing that holds it up.
TEST(TwoJobs, LeaveNoLockBehindWhenTheyAreKilled) {
  const TemporaryFolder folder;
  const auto outcome = fork_ranks(1, [&](int) -> std::string {
    const auto engine = make_saved_run({}, Json::object(), /*stage=*/0);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    ::raise(SIGKILL);
    return "";
  });
  EXPECT_EQ(outcome.front().signal, SIGKILL);
  EXPECT_TRUE(fs::exists(checkpoint::writers_path(folder.path())));
  {
    const auto writer = checkpoint::FolderWriter::enter(folder.path());
    EXPECT_EQ(writer->other(), "");
    EXPECT_EQ(checkpoint::FolderWriter::enter(folder / "."), writer) << "one a process, whatever the path";
    writer->check("a");
  }
  EXPECT_FALSE(fs::exists(checkpoint::writers_path(folder.path()))) << "the last one removes it";
}

}  // namespace
}  // namespace deepspeed::testing
