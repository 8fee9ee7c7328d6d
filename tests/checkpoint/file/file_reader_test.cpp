#include "deepspeed/checkpoint/file/file_reader.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/atomic_file.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = char((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

struct WrittenFile {
  explicit WrittenFile(size_t size) : bytes(some_bytes(size)) {
    AtomicFile file(path());
    // Written in pieces that do not end at chunk boundaries.
    for (size_t done = 0; done < size; done += 100'003)
      file.write(bytes.data() + done, std::min<size_t>(100'003, size - done));
    sums = file.commit();
  }
  std::filesystem::path path() const { return folder.path() / "file"; }
  void flip_bit(size_t at) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(at));
    file.put(char(bytes[at] ^ 4));
  }

  testing::TemporaryFolder folder;
  std::string bytes;
  FileSums sums;
};

TEST(FileSums, AreOnePerChunkAndOneForTheRest) {
  EXPECT_EQ(WrittenFile(0).sums.crcs.size(), 0U);
  EXPECT_EQ(WrittenFile(1).sums.crcs.size(), 1U);
  EXPECT_EQ(WrittenFile(kSumChunkBytes).sums.crcs.size(), 1U);
  EXPECT_EQ(WrittenFile(kSumChunkBytes + 1).sums.crcs.size(), 2U);
}

TEST(FileReader, ReadsEveryIntervalWithAndWithoutSums) {
  const size_t size = 9 * kSumChunkBytes + 777;
  const WrittenFile file(size);
  const FileReader plain(file.path()), verified(file.path(), file.sums);
  const size_t c = kSumChunkBytes;
  for (const size_t begin : {size_t{0}, size_t{1}, c - 1, c, c + 1, 2 * c, 9 * c, size - 1}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{10}, c - 1, c, c + 1, 3 * c, 8 * c, size}) {
      if (begin + count > size) continue;
      std::string seen(count, '\0'), same(count, '\0');
      plain.read(begin, seen.data(), count);
      verified.read(begin, same.data(), count);
      EXPECT_TRUE(seen == file.bytes.substr(begin, count)) << begin << " " << count;
      EXPECT_TRUE(same == seen) << begin << " " << count;
    }
  }
}

TEST(FileReader, ReadsLittleMoreThanWhatIsAskedFor) {
  const WrittenFile file(20 * kSumChunkBytes);
  const FileReader reader(file.path(), file.sums);
  std::string seen(10 * kSumChunkBytes, '\0');
  // Small steps, as for parameters: a chunk at an edge is read once.
  for (size_t done = 0; done < seen.size(); done += 1000)
    reader.read(kSumChunkBytes / 2 + done, seen.data() + done, std::min<size_t>(1000, seen.size() - done));
  EXPECT_LE(reader.bytes_read(), 11 * kSumChunkBytes);
  EXPECT_TRUE(seen == file.bytes.substr(kSumChunkBytes / 2, seen.size()));
}

TEST(FileReader, NoticesABitThatFlippedInWhatItReadsAlone) {
  const WrittenFile file(4 * kSumChunkBytes + 10);
  for (const size_t at : {size_t{0}, size_t{2 * kSumChunkBytes + 5}, size_t{4 * kSumChunkBytes + 9}}) {
    file.flip_bit(at);
    const FileReader reader(file.path(), file.sums);
    char byte = 0;
    EXPECT_THAT(error_of<CheckpointError>([&] { reader.read(at, &byte, 1); }),
                HasSubstr("is altered: its bytes"));
    std::string all(file.bytes.size(), '\0');
    EXPECT_THAT(error_of<CheckpointError>([&] { reader.read(0, all.data(), all.size()); }),
                HasSubstr("is altered"));
    if (at != kSumChunkBytes) reader.read(kSumChunkBytes, &byte, 1);  // another chunk
    std::fstream(file.path(), std::ios::in | std::ios::out | std::ios::binary)
        .write(file.bytes.data(), std::streamsize(file.bytes.size()));
  }
}

TEST(FileReader, RefusesAFileOfAnotherSizeAndBytesBehindItsEnd) {
  const WrittenFile file(1000);
  FileSums longer = file.sums;
  longer.size = 1001;
  EXPECT_THAT(error_of<CheckpointError>([&] { FileReader(file.path(), longer); }),
              HasSubstr("has 1000 bytes, expected 1001"));
  char byte = 0;
  EXPECT_THAT(error_of<CheckpointError>([&] { FileReader(file.path()).read(1000, &byte, 1); }),
              HasSubstr("torn"));
  EXPECT_THAT(error_of<CheckpointError>([&] { FileReader(file.path()).read(UINT64_MAX, &byte, 2); }),
              HasSubstr("torn"));
  EXPECT_ERROR(IoError, FileReader(file.folder.path() / "none"), "none: No such file or directory");
  EXPECT_ERROR(IoError, FileReader(file.folder.path()), "is a folder, expected a regular file",
               file.folder.path().string());
}

}  // namespace
}  // namespace deepspeed::checkpoint
