// `checkpoint.keep_last`: which tags a save leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/layout.h"

#include "tests/crash/saved_run.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::ElementsAre;

Json keep_last(int64_t count) { return {{"checkpoint", {{"keep_last", count}}}}; }

template <class Engine>
void save_in_turn(Engine& engine, const TemporaryFolder& folder, const std::vector<std::string>& tags) {
  for (const std::string& tag : tags) {
    train_step(engine);
    engine.save_checkpoint(folder.path(), {.tag = tag});
  }
}

TEST(KeepLast, LeavesTheNewestTags) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(2));
    save_in_turn(*engine, folder, {"d", "a", "c", "b"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("b", "c", "latest"));
    EXPECT_EQ(checkpoint::read_latest(folder.path()), "b");
    save_in_turn(*engine, folder, {"c"});  // an older tag is saved anew
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("b", "c", "latest"));
    save_in_turn(*engine, folder, {"a"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "c", "latest"));
    engine->load_checkpoint(folder.path(), {.tag = "c"});
    EXPECT_EQ(engine->global_steps(), 5);
  });
}

TEST(KeepLast, IsAllWithoutTheKey) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    save_in_turn(*make_saved_run(world), folder, {"a", "b", "c"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "b", "c", "latest"));
    save_in_turn(*make_saved_run(world, keep_last(1)), folder, {"d"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("d", "latest"));
  });
}

TEST(KeepLast, SparesTheTagOfLatestAndWhatIsNotOurs) {
  const TemporaryFolder folder;
  folder.write("notes/readme.txt", "the user's");
  folder.write("of_deepspeed/mp_rank_00_model_states.pt", "without a manifest");
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(1));
    save_in_turn(*engine, folder, {"a"});
    for (const char* tag : {"b", "c"})
      engine->save_checkpoint(folder.path(), {.tag = tag, .save_latest = false});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "c", "latest", "notes", "of_deepspeed"));
    EXPECT_FALSE(engine->load_checkpoint(folder.path()).path.empty());
  });
}

TEST(KeepLast, CountsTheTagsOfOneFolder) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world, keep_last(1));
    save_in_turn(*engine, folder, {"top", "run/a", "run/b"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("latest", "run", "top"));
    EXPECT_THAT(names_in(world, folder / "run"), ElementsAre("b"));
  });
}

}  // namespace
}  // namespace deepspeed::testing
