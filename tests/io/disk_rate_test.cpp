#include "deepspeed/io/disk_rate.h"

#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::io {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(DiskRate, IsMeasuredAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  const int probe = ::open((folder / "probe").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0666);
  if (probe < 0) GTEST_SKIP() << "this file system has no O_DIRECT";
  ::close(probe);
  std::filesystem::remove(folder / "probe");
  const DiskRate rate = measure_disk(folder.path(), {.bytes = 1'000'000, .loops = 2, .validate = true},
                                     {.block_bytes = size_t{64} << 10});
  EXPECT_GT(rate.read, 0.0);
  EXPECT_GT(rate.write, 0.0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DiskRate, SaysWhichFolderCannotBeMeasured) {
  EXPECT_THAT(error_of<IoError>([] { measure_disk("/no/such/folder", {}, {}); }),
              HasSubstr("\"/no/such/folder\": No such file or directory"));
  EXPECT_THAT(error_of<UsageError>([] { measure_disk("/tmp", {.loops = 0}, {}); }), HasSubstr("0 loops"));
}

}  // namespace
}  // namespace deepspeed::io
