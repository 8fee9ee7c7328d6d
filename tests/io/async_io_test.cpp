#include "deepspeed/io/async_io.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/io/queue/aligned_buffer.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::io {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr size_t kBlock = kDirectAlignment;

/// A file of the folder that is closed at the end.
class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, int flags) : file_(::open(path.c_str(), flags, 0666)) {}
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

char byte_at(size_t position) { return char((position * 2654435761u) >> 13); }

AlignedBuffer numbered(size_t bytes, size_t first = 0) {
  AlignedBuffer buffer(bytes);
  for (size_t i = 0; i < bytes; ++i) buffer.data()[i] = byte_at(first + i);
  return buffer;
}

class Tunings : public ::testing::TestWithParam<AsyncIoOptions> {};
INSTANTIATE_TEST_SUITE_P(AsyncIo, Tunings,
                         ::testing::Values(AsyncIoOptions{kBlock, 1, 1, false, true},
                                           AsyncIoOptions{kBlock, 8, 1, false, true},
                                           AsyncIoOptions{3 * kBlock, 4, 3, false, true},
                                           AsyncIoOptions{2 * kBlock, 3, 2, true, true},
                                           AsyncIoOptions{kBlock, 5, 2, false, false},
                                           AsyncIoOptions{kBlock, 2, 1, true, false},
                                           AsyncIoOptions{size_t{1} << 30, 2, 2, false, true}));

TEST_P(Tunings, WriteAndReadRangesPastThePageCache) {
  const TemporaryFolder folder;
  const OpenFile file(folder / "swap", O_RDWR | O_CREAT | O_DIRECT);
  if (file.get() < 0) GTEST_SKIP() << "this file system has no O_DIRECT";
  constexpr size_t kFirst = 37 * kBlock, kSecond = kBlock;
  const AlignedBuffer first = numbered(kFirst), second = numbered(kSecond, 99);
  AlignedBuffer read(kFirst + kSecond);
  AsyncIo io(GetParam(), {{read.data(), read.size()}});
  const uint64_t one = io.start({Transfer::Kind::kWrite, file.get(), first.data(), kFirst, 0});
  const uint64_t two = io.start({Transfer::Kind::kWrite, file.get(), second.data(), kSecond, kFirst});
  EXPECT_EQ(io.wait(two).bytes, kSecond);
  EXPECT_EQ(io.wait(one).bytes, kFirst);
  const uint64_t all = io.start({Transfer::Kind::kRead, file.get(), read.data(), read.size(), 0});
  const Completion done = io.wait(all);
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(done.bytes, read.size());
  EXPECT_EQ(std::string(read.data(), kFirst), std::string(first.data(), kFirst));
  EXPECT_EQ(std::string(read.data() + kFirst, kSecond), std::string(second.data(), kSecond));
}

TEST_P(Tunings, ReadFewerBytesAtTheEndOfAFile) {
  const TemporaryFolder folder;
  folder.write("file", std::string(2 * kBlock + 100, 'x'));
  const OpenFile file(folder / "file", O_RDONLY);
  std::string bytes(20 * kBlock, '\0');
  AsyncIo io(GetParam());
  const Completion done =
      io.wait(io.start({Transfer::Kind::kRead, file.get(), bytes.data(), bytes.size(), 0}));
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(done.bytes, 2 * kBlock + 100);
  EXPECT_EQ(bytes.substr(0, done.bytes), std::string(done.bytes, 'x'));
}

TEST_P(Tunings, ReportTheSystemsErrorAndContinue) {
  const TemporaryFolder folder;
  folder.write("file", std::string(9 * kBlock, 'x'));
  const OpenFile file(folder / "file", O_RDONLY);
  std::string bytes(9 * kBlock, 'y');
  AsyncIo io(GetParam());
  const auto move = [&](Transfer::Kind kind) {
    return io.wait(io.start({kind, file.get(), bytes.data(), bytes.size(), 0}));
  };
  EXPECT_EQ(move(Transfer::Kind::kWrite).error, EBADF);
  EXPECT_EQ(move(Transfer::Kind::kRead).bytes, bytes.size());
}

TEST_P(Tunings, FinishTransfersThatNothingWaitsFor) {
  const TemporaryFolder folder;
  const AlignedBuffer data = numbered(64 * kBlock);
  {
    const OpenFile file(folder / "file", O_WRONLY | O_CREAT);
    AsyncIo io(GetParam());
    io.start({Transfer::Kind::kWrite, file.get(), data.data(), data.size(), 0});
  }
  std::ostringstream written;
  written << std::ifstream(folder / "file", std::ios::binary).rdbuf();
  EXPECT_EQ(written.str(), std::string(data.data(), data.size()));
}

TEST(AsyncIo, FinishesAtOnceIfThereIsNothingToDo) {
  AsyncIo io({});
  const Completion done = io.wait(io.start({Transfer::Kind::kRead, -1, nullptr, 0, 0}));
  EXPECT_EQ(done.bytes, 0u);
  EXPECT_EQ(done.error, 0);
}

TEST(AsyncIo, RefusesImpossibleOptionsAndTickets) {
  const auto refused = [](AsyncIoOptions options) {
    return error_of<UsageError>([&] { AsyncIo io(options); });
  };
  EXPECT_THAT(refused({.block_bytes = 1000}), HasSubstr("block_size is 1000, expected a multiple of 4096"));
  EXPECT_THAT(refused({.queue_depth = 0}), HasSubstr("queue_depth is 0"));
  EXPECT_THAT(refused({.num_threads = 0}), HasSubstr("intra_op_parallelism 0"));
  AsyncIo io({});
  EXPECT_THAT(error_of<UsageError>([&] { io.wait(3); }), HasSubstr("ticket 3"));
}

}  // namespace
}  // namespace deepspeed::io
