// Two jobs that save one tag at one moment: the second is told so, and the first saves.
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(TwoJobs, ThatSaveOneTagAreToldOfEachOther) {
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
  checkpoint::StagingLock second(folder / ".a.saving");
  EXPECT_TRUE(second.is_taken());
  EXPECT_FALSE(checkpoint::StagingLock(folder / "none").is_taken());
  fs::rename(folder / ".a.saving", folder / "a");
  EXPECT_TRUE(lock.is_of(folder / "a"));
  EXPECT_FALSE(lock.is_of(folder / ".a.saving"));
}

}  // namespace
}  // namespace deepspeed::testing
