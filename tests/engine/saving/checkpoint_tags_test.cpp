// Tags that ranks must agree on, and what a save says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using ::testing::ContainsRegex;
using testing::make_engine;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_step;

Json quiet_config(Json patch = Json::object()) {
  Json config = testing::basic({{"log_level", "off"}});
  config.merge_patch(patch);
  return config;
}

TEST(CheckpointTags, AreRefusedOnAllRanksIfTheyDiffer) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(quiet_config({{"checkpoint", {{"tag_validation", "Fail"}}}}), world);
    train_step(*engine);
    const std::string own = world.rank() == 0 ? "a" : "b";
    EXPECT_ERROR(CheckpointError, engine->save_checkpoint(folder / "run", {.tag = own}),
                 "the tag 'b' of rank 1 is not that of rank 0, 'a'", "cannot be resumed on other ranks");
    world.group().barrier();
    EXPECT_FALSE(std::filesystem::exists(folder / "run/a"));
    EXPECT_FALSE(std::filesystem::exists(folder / "run/b"));
    engine->save_checkpoint(folder / "run", {.tag = "a"});
    engine->save_checkpoint(folder / "run", {.tag = "b"});
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder / "run", {.tag = own}), "'b' on rank 1",
                 "'a' on rank 0, expected the same");
  });
}

TEST(CheckpointTags, LogTheBytesThatARankWroteIfAsked) {
  const TemporaryFolder folder;
  const Json config =
      testing::basic({{"log_level", "info"}, {"checkpoint", {{"writer", {{"show_statistics", true}}}}}});
  const auto engine = make_engine(config);
  train_step(*engine);
  ::testing::internal::CaptureStderr();
  engine->save_checkpoint(folder / "run");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("rank 0 wrote [1-9][0-9]* files of [1-9][0-9]* bytes in .* GB/s, durable"));
}

TEST(Save16BitModel, NeedsANameThatIsNoneOfACheckpoint) {
  const TemporaryFolder folder;
  const auto engine = make_engine(quiet_config());
  EXPECT_ERROR(UsageError, engine->save_16bit_model("", "model.bin"), "needs a directory and a file name");
  EXPECT_ERROR(UsageError, engine->save_16bit_model(folder / "run", ""), "needs a directory and a file name");
  EXPECT_ERROR(UsageError, engine->save_16bit_model(folder / "run", "latest"), "'latest'", "choose another");
}

}  // namespace
}  // namespace deepspeed
