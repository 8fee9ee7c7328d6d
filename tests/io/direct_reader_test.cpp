#include "deepspeed/io/direct_reader.h"

#include <cerrno>
#include <random>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace deepspeed::io {
namespace {

class DirectReading : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    bytes_.resize(17'000'003);
    uint32_t state = 1;
    for (char& byte : bytes_) byte = char((state = state * 1664525u + 1013904223u) >> 24);
    folder_.write("file", bytes_);
    const int file = ::open((folder_ / "file").c_str(), O_RDONLY | O_DIRECT);
    if (file < 0) GTEST_SKIP() << "the file system has no O_DIRECT";
    reader_ = std::make_unique<DirectReader>(file, GetParam() ? make_thread_queue(32) : nullptr);
  }
  std::string read(uint64_t offset, size_t size) {
    std::string result(size, '\0');
    EXPECT_EQ(reader_->read(offset, result.data(), size), 0) << offset << " " << size;
    return result;
  }

  testing::TemporaryFolder folder_;
  std::string bytes_;
  std::unique_ptr<DirectReader> reader_;
};

TEST_P(DirectReading, GoesForwardInPiecesOfAnySize) {
  for (const size_t piece : {1'000'000, 4'096, 2'500'001, 17'000'003}) {
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      const size_t size = std::min(piece, bytes_.size() - at);
      ASSERT_EQ(read(at, size), bytes_.substr(at, size)) << at;
    }
  }
}

TEST_P(DirectReading, JumpsToAnyPlace) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const size_t at = random() % bytes_.size();
    const size_t size =
        std::min<size_t>(random() % (round % 10 == 0 ? 9'000'000 : 70'000), bytes_.size() - at);
    ASSERT_EQ(read(at, size), bytes_.substr(at, size)) << at << " " << size;
  }
}

TEST_P(DirectReading, ReportsTheEndOfTheFileAndContinuesElsewhere) {
  std::string buffer(100, '\0');
  EXPECT_EQ(reader_->read(bytes_.size() - 50, buffer.data(), 100), ENODATA);
  EXPECT_EQ(reader_->read(bytes_.size() + 5'000'000, buffer.data(), 100), ENODATA);
  EXPECT_EQ(read(bytes_.size() - 50, 50), bytes_.substr(bytes_.size() - 50));
  EXPECT_EQ(read(5, 3'000'000), bytes_.substr(5, 3'000'000));
}

INSTANTIATE_TEST_SUITE_P(OverBothQueues, DirectReading, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "threads" : "best"; });

}  // namespace
}  // namespace deepspeed::io
