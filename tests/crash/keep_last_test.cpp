// `checkpoint.keep_last`: which tags a save leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/crash/saved_run.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

Json keep_last(int64_t count) { return {{"checkpoint", {{"keep_last", count}}}}; }

/// Under the names that the training gives.
template <class Engine>
void save_in_turn(Engine& engine, const TemporaryFolder& folder, int count) {
  for (int save = 0; save < count; ++save) {
    train_step(engine);
    engine.save_checkpoint(folder.path());
  }
}

TEST(KeepLast, LeavesTheNewestTags) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(2));
    save_in_turn(*engine, folder, 4);
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("global_step3", "global_step4", "latest"));
    EXPECT_EQ(checkpoint::read_latest(folder.path()), "global_step4");
    engine->load_checkpoint(folder.path(), {.tag = "global_step3"});
    engine->save_checkpoint(folder.path());  // an older tag is saved anew: it is the newest then
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("global_step3", "global_step4", "latest"));
    train_step(*engine);
    train_step(*engine);
    engine->save_checkpoint(folder.path());
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("global_step3", "global_step5", "latest"));
  });
}

TEST(KeepLast, IsAllWithoutTheKey) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    save_in_turn(*make_saved_run(world), folder, 3);
    EXPECT_EQ(names_in(world, folder.path()).size(), 4u);
    const auto engine = make_saved_run(world, keep_last(1));
    engine->load_checkpoint(folder.path());
    save_in_turn(*engine, folder, 1);
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("global_step4", "latest"));
  });
}

TEST(KeepLast, SparesWhatTheUserNamed) {
  const TemporaryFolder folder;
  folder.write("notes/readme.txt", "the user's");
  folder.write("of_deepspeed/mp_rank_00_model_states.pt", "without a manifest");
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(1));
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "best", .save_latest = false});
    engine->save_checkpoint(folder.path(), {.tag = "named"});
    engine->save_checkpoint(folder.path(), {.tag = "global_step100"});          // of no such step
    engine->save_checkpoint(folder.path(), {.tag = "", .save_latest = false});  // global_step1, aside
    save_in_turn(*engine, folder, 3);
    EXPECT_THAT(names_in(world, folder.path()),
                ElementsAre("best", "global_step1", "global_step100", "global_step4", "latest", "named",
                            "notes", "of_deepspeed"));
    engine->save_checkpoint(folder.path(), {.tag = "last"});  // is not in the turn, and ends nothing in it
    EXPECT_THAT(names_in(world, folder.path()), ::testing::Contains("global_step4"));
    EXPECT_FALSE(engine->load_checkpoint(folder.path(), {.tag = "best"}).path.empty());
  });
}

TEST(KeepLast, CountsNoLinksAndSparesWhatTheyName) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(2));
    save_in_turn(*engine, folder, 2);
    fs::create_directory_symlink("global_step1", folder / "marked");
    fs::create_directory_symlink("global_step2", folder / "global_step9");
    save_in_turn(*engine, folder, 2);
    fs::remove(folder / "global_step9");
    save_in_turn(*engine, folder, 1);
    EXPECT_THAT(names_in(world, folder.path()),
                ElementsAre("global_step1", "global_step4", "global_step5", "latest", "marked"));
    EXPECT_FALSE(engine->load_checkpoint(folder.path(), {.tag = "marked"}).path.empty());
  });
}

TEST(KeepLast, TakesATagThatGotAnotherNameForTheUsers) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(1));
    save_in_turn(*engine, folder, 1);
    fs::rename(folder / "global_step1", folder / "best");
    fs::copy(folder / "best", folder / "global_step_copy", fs::copy_options::recursive);
    save_in_turn(*engine, folder, 2);
    EXPECT_THAT(names_in(world, folder.path()),
                ElementsAre("best", "global_step3", "global_step_copy", "latest"));
  });
}

}  // namespace
}  // namespace deepspeed::testing
