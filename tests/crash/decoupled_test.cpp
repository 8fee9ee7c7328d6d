// `checkpoint.writer.decoupled`: files are written while the training goes on.
#include <cerrno>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/crash/saved_run.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json decoupled(Json writer = Json::object()) {
  writer["decoupled"] = true;
  return {{"checkpoint", {{"writer", writer}}}};
}

TEST(DecoupledSave, HoldsTheMomentOfTheCallWhileTrainingContinues) {
  for (const int stage : {0, 1, 2}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, decoupled({{"io_multiplier", 1 + stage}}), stage);
      for (int save = 0; save < 3; ++save) {
        train_step(*engine, save);
        const std::string saved = content_of(*engine);
        engine->save_checkpoint(folder.path(), {.tag = "now"});
        for (int step = 0; step < 3; ++step) train_step(*engine, 10 + step);
        engine->wait_for_checkpoint();
        EXPECT_TRUE(engine->checkpoint_is_saved());
        const auto loaded = make_saved_run(world, Json::object(), stage);
        loaded->load_checkpoint(folder.path());
        EXPECT_EQ(content_of(*loaded), saved) << "stage " << stage << ", save " << save;
      }
    });
  }
}

TEST(DecoupledSave, EndsBeforeTheNextSaveTheNextLoadAndTheEngine) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    std::string third;
    {
      const auto engine = make_saved_run(world, decoupled());
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "first"});
      engine->save_checkpoint(folder.path(), {.tag = "second"});
      EXPECT_THAT(names_in(folder.path()), ::testing::Contains("first"));
      EXPECT_EQ(engine->load_checkpoint(folder.path()).path,
                checkpoint::model_states_path(folder.path(), "second").string());
      train_step(*engine);
      third = content_of(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "third"});
    }
    EXPECT_EQ(checkpoint::read_latest(folder.path()), "third");
    const auto loaded = make_saved_run(world);
    loaded->load_checkpoint(folder.path());
    EXPECT_EQ(content_of(*loaded), third);
  });
}

TEST(DecoupledSave, ReportsAFailureInTheNextCallOnEveryRank) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.string().c_str(), "tmpfs", 0, "size=2m") != 0)
    GTEST_SKIP() << "a tmpfs cannot be mounted: " << std::strerror(errno);
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, decoupled());
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "before"});
    engine->wait_for_checkpoint();
    const std::string before = content_of(*engine);
    on_rank_0(world, [&] {
      std::ofstream(folder / "filler", std::ios::binary)
          << std::string(fs::space(folder.path()).available - 50'000, 'x');
    });
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "after"});
    train_step(*engine);
    const std::string error =
        error_of<Error>([&] { engine->save_checkpoint(folder.path(), {.tag = "next"}); });
    EXPECT_THAT(error, HasSubstr("No space left on device"));
    EXPECT_THAT(error, HasSubstr(".after.saving"));
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("before", "filler", "latest"));
    on_rank_0(world, [&] { fs::remove(folder / "filler"); });
    // Said once; the engine and the folder stay usable.
    engine->save_checkpoint(folder.path(), {.tag = "next"});
    engine->load_checkpoint(folder.path(), {.tag = "before"});
    EXPECT_EQ(content_of(*engine), before);
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("before", "latest", "next"));
  });
  ::umount2(folder.string().c_str(), MNT_DETACH);
}

TEST(MockWriter, LeavesTheDiskAlone) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, {{"checkpoint", {{"writer", {{"type", "MOCK"}}}}}});
    train_step(*engine);
    engine->save_checkpoint(folder / "run");
    EXPECT_FALSE(fs::exists(folder / "run"));
  });
}

}  // namespace
}  // namespace deepspeed::testing
