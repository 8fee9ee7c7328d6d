// What an interrupted saving leaves behind: it is found again where it is the only copy, it goes where it is
// not, and it is never taken for a checkpoint.
#include <fstream>

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Leftover, OfTwoRenamesIsLoaded) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    const std::string saved = content_of(*engine);
    // As where a file system cannot exchange two folders: the older one has lost its name, the newer one has
    // not got it.
    on_rank_0(world, [&] { fs::rename(folder / "a", folder / ".a.old"); });
    train_step(*engine);
    EXPECT_FALSE(engine->load_checkpoint(folder.path()).path.empty());
    EXPECT_EQ(content_of(*engine), saved);
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "latest"));
  });
}

TEST(Leftover, OfTwoRenamesGoesWhereTheNewerTagIsThere) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    fs::copy(folder / "a", folder / ".a.old");
    engine->load_checkpoint(folder.path());
    EXPECT_EQ(names_in(world, folder.path()).count(".a.old"), 0u);
    // A program that saves before it has loaded.
    folder.write("a/notes.txt", "the user's");
    fs::rename(folder / "a", folder / ".a.old");
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "latest"));
    EXPECT_TRUE(fs::exists(folder / "a/notes.txt"));
  });
}

TEST(Leftover, OfKilledSavingsGoesWithTheNextOne) {
  const TemporaryFolder folder;
  folder.write(".a.saving/mp_rank_00_model_states.pt", "half");
  folder.write(".b.saving/mp_rank_00_model_states.pt.17.tmp", "half");
  folder.write(".c.removed/manifest.json", "half");
  folder.write("latest.17.tmp", "step");
  folder.write("zero_to_fp32.py.17.tmp", "#!");
  folder.write("own/file.saving", "the user's");
  folder.write("latest.before.tmp", "the user's");
  folder.write(".notes.saving", "the user's, no folder");
  folder.write("live/.d.saving/file", "another process fills it");
  fs::rename(folder / "live/.d.saving", folder / ".d.saving");
  fs::remove(folder / "live");
  const checkpoint::StagingLock other(folder / ".d.saving");
  ASSERT_TRUE(other.is_held());
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_THAT(names_in(world, folder.path()),
                ElementsAre(".d.saving", ".notes.saving", "a", "latest", "latest.before.tmp", "own"));
    EXPECT_EQ(names_in(world, folder / "a").count("manifest.json"), 1u);
    EXPECT_EQ(names_in(world, folder / "a").size(), 6u);  // model, two of each rank, manifest
  });
  EXPECT_TRUE(fs::exists(folder / "own/file.saving"));
}

TEST(Leftover, IsNoFolderOfTheUserThatHasItsName) {
  const TemporaryFolder folder;
  folder.write(".a.old/notes.txt", "the user's");
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    for (int save = 0; save < 2; ++save) engine->save_checkpoint(folder.path(), {.tag = "a"});
    engine->load_checkpoint(folder.path());
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre(".a.old", "a", "latest"));
  });
  EXPECT_TRUE(fs::exists(folder / ".a.old/notes.txt"));
}

TEST(Leftover, OfAnotherMachinesSavingIsNotPublished) {
  const TemporaryFolder folder;
  const auto lock = checkpoint::begin_tag(folder / "nested", "a");
  folder.write("nested/.a.saving/listed", "x");
  folder.write("nested/.a.saving/zero_pp_rank_7_mp_rank_00_optim_states.pt", "of a larger world");
  checkpoint::Manifest manifest;
  manifest.files["listed"] = {1, {}};
  checkpoint::remove_unlisted(folder / "nested", "a", manifest);
  checkpoint::publish_tag(folder / "nested", "a");
  EXPECT_THAT(names_in(folder / "nested"), ElementsAre("a"));
  EXPECT_THAT(names_in(folder / "nested/a"), ElementsAre("listed"));
}

TEST(Leftover, LocksEndWithTheirOwner) {
  const TemporaryFolder folder;
  checkpoint::StagingLock first(folder.path());
  EXPECT_TRUE(first.is_held());
  EXPECT_FALSE(checkpoint::StagingLock(folder.path()).is_held());
  first = checkpoint::StagingLock();
  EXPECT_TRUE(checkpoint::StagingLock(folder.path()).is_held());
  EXPECT_FALSE(checkpoint::StagingLock(folder / "none").is_held());
}

TEST(MissingLatest, LoadsNothingUntilATagIsChosen) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    const std::string saved = content_of(*engine);
    on_rank_0(world, [&] { fs::remove(folder / "latest"); });
    train_step(*engine);
    EXPECT_TRUE(engine->load_checkpoint(folder.path()).path.empty());
    EXPECT_NE(content_of(*engine), saved);
    engine->load_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_EQ(content_of(*engine), saved);
  });
}

TEST(TornTag, IsNamedWithTheNewestWholeOne) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    for (const char* tag : {"a", "b", "c"}) {
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = tag});
    }
    const fs::path file = folder / "c/zero_pp_rank_1_mp_rank_00_optim_states.pt";
    on_rank_0(world, [&] { fs::resize_file(file, fs::file_size(file) - 1); });
    const std::string error = error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path()); });
    EXPECT_THAT(error, HasSubstr(file.filename().string()));
    EXPECT_THAT(error, HasSubstr("'b'"));
    engine->load_checkpoint(folder.path(), {.tag = "b"});
    EXPECT_EQ(engine->global_steps(), 2);
  });
}

TEST(WholeTag, OfAnotherModelOrOptimizerPointsToNoOther) {
  for (const int stage : {0, 1, 3}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, Json::object(), stage);
      for (const char* tag : {"a", "b"}) {
        train_step(*engine);
        engine->save_checkpoint(folder.path(), {.tag = tag});
      }
      const auto smaller = make_engine(basic({{"zero_optimization", {{"stage", stage}}}}), world);
      const auto lion = make_saved_run(world, {{"optimizer", {{"type", "Lion"}}}}, stage);
      const auto expect_no_way_out = [&](auto& other) {
        EXPECT_THAT(error_of<Error>([&] { other->load_checkpoint(folder.path()); }),
                    AllOf(Not(HasSubstr("no error")), Not(HasSubstr("other tag"))))
            << stage;
      };
      expect_no_way_out(smaller);
      expect_no_way_out(lion);
    });
  }
}

}  // namespace
}  // namespace deepspeed::testing
