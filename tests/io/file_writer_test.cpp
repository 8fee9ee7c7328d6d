#include "deepspeed/io/file_writer.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::io {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string numbered_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = char((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_in_pieces(FileWriter& writer, const std::string& bytes, size_t piece) {
  for (size_t done = 0; done < bytes.size(); done += piece)
    ASSERT_EQ(writer.write(bytes.data() + done, std::min(piece, bytes.size() - done)), 0);
  ASSERT_EQ(writer.finish(), 0);
}

TEST(FileWriter, WritesEveryByteWhateverTheSizes) {
  const TemporaryFolder folder;
  size_t turn = 0;
  for (const size_t buffer : {size_t{1}, size_t{50'000}, size_t{8} << 20}) {
    for (const size_t size : {0, 1, 4096, 4097, 5'000'000}) {
      const bool double_buffered = ++turn % 2 == 0, is_reserved = turn % 3 == 0;
      const std::string bytes = numbered_bytes(size);
      const auto writer = open_writer(folder / "file", {WriteMethod::kDirect, buffer, double_buffered});
      ASSERT_EQ(is_reserved ? writer->reserve(bytes.size()) : 0, 0);
      write_in_pieces(*writer, bytes, 70'003);
      ASSERT_EQ(content_of(folder / "file"), bytes)
          << size << " bytes, buffer " << buffer << ", double " << double_buffered;
    }
  }
  const std::string bytes = numbered_bytes(300'001);
  const auto writer = open_writer(folder / "file", {.method = WriteMethod::kPlain});
  write_in_pieces(*writer, bytes, 70'003);
  EXPECT_EQ(content_of(folder / "file"), bytes);
}

TEST(FileWriter, CutsWhatWasReservedTooMuchAndGrowsBeyondTooLittle) {
  const TemporaryFolder folder;
  const std::string bytes = numbered_bytes(100'001);
  for (const uint64_t reserved : {uint64_t{1}, uint64_t{3'000'000}}) {
    const auto writer = open_writer(folder / "file");
    ASSERT_EQ(writer->reserve(reserved), 0);
    write_in_pieces(*writer, bytes, bytes.size());
    EXPECT_EQ(content_of(folder / "file"), bytes);
  }
}

TEST(FileWriter, ReplacesALongerFile) {
  const TemporaryFolder folder;
  folder.write("file", std::string(10'000, 'x'));
  const auto writer = open_writer(folder / "file");
  write_in_pieces(*writer, "short", 5);
  EXPECT_EQ(content_of(folder / "file"), "short");
}

TEST(FileWriter, NamesAPathThatCannotBeMade) {
  const TemporaryFolder folder;
  for (const WriteMethod method : {WriteMethod::kDirect, WriteMethod::kPlain}) {
    EXPECT_THAT(
        testing::error_of<IoError>([&] { open_writer(folder / "no_folder/file", {.method = method}); }),
        HasSubstr("no_folder/file\": No such file or directory"));
  }
}

TEST(DirectWriter, WritesTheSameOverThreads) {
  const TemporaryFolder folder;
  const auto writer =
      open_writer(folder / "file", {.buffer_bytes = 100'000}, AT_FDCWD, make_thread_queue(32));
  const std::string bytes = numbered_bytes(1'000'001);
  write_in_pieces(*writer, bytes, 12'345);
  EXPECT_EQ(content_of(folder / "file"), bytes);
}

/// Writes like another queue, but claims to have written less of each transfer.
class ShortQueue : public TransferQueue {
 public:
  explicit ShortQueue(size_t missing) : queue_(make_thread_queue(4)), missing_(missing) {}
  void add(const Transfer& transfer) override { queue_->add(transfer); }
  void submit() override { queue_->submit(); }
  Completion wait() override {
    Completion completion = queue_->wait();
    completion.bytes -= missing_;
    return completion;
  }
  size_t num_under_way() const override { return queue_->num_under_way(); }
  size_t depth() const override { return queue_->depth(); }

 private:
  std::unique_ptr<TransferQueue> queue_;
  size_t missing_;
};

TEST(DirectWriter, TellsOfAWriteThatEndsEarly) {
  const TemporaryFolder folder;
  for (const size_t missing : {size_t{1}, size_t{512}, kDirectAlignment}) {
    const auto writer = open_writer(folder / "file", {.buffer_bytes = 100'000}, AT_FDCWD,
                                    std::make_unique<ShortQueue>(missing));
    const std::string bytes = numbered_bytes(1'000'000);
    int error = writer->write(bytes.data(), bytes.size());
    if (error == 0) error = writer->finish();
    EXPECT_EQ(error, ENOSPC) << missing;
  }
}

TEST(FileWriter, TellsThatTheDiskIsFull) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.string().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "a tmpfs cannot be mounted";
  for (const WriteMethod method : {WriteMethod::kDirect, WriteMethod::kPlain}) {
    EXPECT_EQ(open_writer(folder / "reserved", {.method = method})->reserve(10 << 20), ENOSPC);
    const std::string bytes = numbered_bytes(4 << 20);
    const auto writer = open_writer(folder / "file", {.method = method});
    int error = writer->write(bytes.data(), bytes.size());
    if (error == 0) error = writer->finish();
    EXPECT_EQ(error, ENOSPC);
    EXPECT_NE(writer->finish(), 0);  // it stays so
    std::filesystem::remove(folder / "file");
  }
  ::umount2(folder.string().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace deepspeed::io
