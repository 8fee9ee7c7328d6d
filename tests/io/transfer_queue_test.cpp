#include "deepspeed/io/queue/transfer_queue.h"

#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::io {
namespace {

using testing::TemporaryFolder;
using Make = std::function<std::unique_ptr<TransferQueue>(size_t)>;

/// Both kinds of queue; io_uring where the machine has it.
class Queues : public ::testing::TestWithParam<std::pair<const char*, Make>> {
 protected:
  std::unique_ptr<TransferQueue> make(size_t depth) const { return GetParam().second(depth); }
  void SetUp() override {
    if (!make(1)) GTEST_SKIP() << "this machine or build has no " << GetParam().first;
    file_ = ::open((folder_ / "file").c_str(), O_RDWR | O_CREAT, 0666);
  }
  void TearDown() override {
    if (file_ >= 0) ::close(file_);
  }

  TemporaryFolder folder_;
  int file_ = -1;
};

TEST_P(Queues, MoveManyBlocksInAnyOrder) {
  constexpr size_t kBlock = 10'000, kCount = 50, kDepth = 7;
  std::vector<std::string> blocks;
  for (size_t block = 0; block < kCount; ++block) blocks.emplace_back(kBlock, char('a' + block % 26));
  const auto queue = make(kDepth);
  const auto run = [&](Transfer::Kind kind, std::vector<std::string>& data) {
    std::map<uint64_t, size_t> done;
    for (size_t block = 0; block < kCount; ++block) {
      if (queue->num_under_way() == queue->depth()) {
        const Completion completion = queue->wait();
        EXPECT_EQ(completion.error, 0);
        done[completion.id] = completion.bytes;
      }
      queue->start({kind, file_, data[block].data(), kBlock, block * kBlock, block});
    }
    while (queue->num_under_way() > 0) {
      const Completion completion = queue->wait();
      done[completion.id] = completion.bytes;
    }
    EXPECT_EQ(done.size(), kCount);
    for (const auto& [id, bytes] : done) EXPECT_EQ(bytes, kBlock) << id;
  };
  run(Transfer::Kind::kWrite, blocks);
  std::vector<std::string> read(kCount, std::string(kBlock, '\0'));
  run(Transfer::Kind::kRead, read);
  EXPECT_EQ(read, blocks);
}

TEST_P(Queues, ReadFewerBytesAtTheEndOfAFile) {
  folder_.write("file", std::string(5000, 'x'));
  std::string bytes(20'000, '\0');
  const auto queue = make(2);
  queue->start({Transfer::Kind::kRead, file_, bytes.data(), bytes.size(), 1000, 5});
  const Completion completion = queue->wait();
  EXPECT_EQ(completion.id, 5u);
  EXPECT_EQ(completion.bytes, 4000u);
  EXPECT_EQ(completion.error, 0);
}

TEST_P(Queues, TellTheSystemsError) {
  const int read_only = ::open((folder_ / "file").c_str(), O_RDONLY);
  std::string bytes(100, 'x');
  const auto queue = make(2);
  queue->start({Transfer::Kind::kWrite, read_only, bytes.data(), bytes.size(), 0, 1});
  EXPECT_EQ(queue->wait().error, EBADF);
  ::close(read_only);
}

TEST_P(Queues, RefuseMoreThanTheirDepthAndAWaitForNothing) {
  std::string bytes(100, 'x');
  const auto queue = make(1);
  EXPECT_ERROR(UsageError, queue->wait(), "no transfer is under way");
  queue->start({Transfer::Kind::kWrite, file_, bytes.data(), bytes.size(), 0, 1});
  EXPECT_ERROR(UsageError, queue->start({Transfer::Kind::kWrite, file_, bytes.data(), bytes.size(), 0, 2}),
               "more than 1 transfers are under way");
}

TEST_P(Queues, FinishWhatIsUnderWayWhenTheyAreLeft) {
  const std::string bytes(1 << 20, 'x');
  std::string data = bytes;
  {
    const auto queue = make(4);
    for (size_t block = 0; block < 4; ++block)
      queue->start({Transfer::Kind::kWrite, file_, data.data(), data.size(), block * data.size(), block});
  }
  EXPECT_EQ(std::filesystem::file_size(folder_ / "file"), 4 * bytes.size());
}

TEST(UringQueue, IsThereOrItIsSaidWhyNot) {
  EXPECT_EQ(why_no_uring().empty(), make_uring_queue(1) != nullptr);
}

INSTANTIATE_TEST_SUITE_P(OfBothKinds, Queues,
                         ::testing::Values(std::pair<const char*, Make>("io_uring",
                                                                        [](size_t depth) {
                                                                          return make_uring_queue(depth);
                                                                        }),
                                           std::pair<const char*, Make>("threads", make_thread_queue)),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace deepspeed::io
