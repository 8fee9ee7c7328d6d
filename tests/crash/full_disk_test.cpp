// A disk that is full while a checkpoint is saved: a small tmpfs, which only root can mount.
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
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    mounted_ = ::mount("tmpfs", folder_.string().c_str(), "tmpfs", 0, "size=2m") == 0;
    if (!mounted_) GTEST_SKIP() << "a tmpfs cannot be mounted: " << std::strerror(errno);
  }
  void TearDown() override {
    if (mounted_) ::umount2(folder_.string().c_str(), MNT_DETACH);
  }
  /// Leaves that many bytes free.
  void fill_up_to(uint64_t free_bytes) const {
    const uint64_t available = fs::space(folder_.path()).available;
    std::ofstream(folder_ / "filler", std::ios::binary) << std::string(available - free_bytes, 'x');
  }

  TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST_F(FullDisk, IsReportedOnEveryRankAndLeavesTheEarlierTag) {
  run_ranks(3, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder_.path(), {.tag = "before"});
    const std::string before = content_of(*engine);
    for (const uint64_t free_bytes : {200'000, 20'000, 0}) {
      on_rank_0(world, [&] { fill_up_to(free_bytes); });
      train_step(*engine);
      for (const char* tag : {"after", "before"}) {
        const std::string error =
            error_of<Error>([&] { engine->save_checkpoint(folder_.path(), {.tag = tag}); });
        EXPECT_THAT(error, HasSubstr(message(folder_.string(), "/.", tag, ".saving"))) << free_bytes;
        EXPECT_THAT(error, HasSubstr("No space left on device")) << free_bytes;
        EXPECT_THAT(error, ContainsRegex("_states.pt.*it needs [0-9]+ bytes, [0-9]+ are free"));
        EXPECT_THAT(names_in(world, folder_.path()), ElementsAre("before", "filler", "latest"));
      }
      engine->load_checkpoint(folder_.path());
      EXPECT_EQ(content_of(*engine), before);
      on_rank_0(world, [&] { fs::remove(folder_ / "filler"); });
    }
    engine->save_checkpoint(folder_.path(), {.tag = "after"});
    EXPECT_THAT(names_in(world, folder_.path()), ElementsAre("after", "before", "latest"));
    EXPECT_EQ(checkpoint::read_latest(folder_.path()), "after");
  });
}

}  // namespace
}  // namespace deepspeed::testing
