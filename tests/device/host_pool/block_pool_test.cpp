#include "deepspeed/device/host_pool/block_pool.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deepspeed::device {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockPool, GivesBlocksThatDoNotMeetWhateverWasFreed) {
  BlockPool pool(1024 * kMiB, 8 * kMiB);
  std::mt19937 random(1);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (int step = 0; step < 3000; ++step) {
    if (blocks.size() < 4 || (blocks.size() < 24 && random() % 2 == 0)) {
      const size_t bytes = 1 + random() % (6 * kMiB);
      auto* const block = static_cast<unsigned char*>(pool.allocate(bytes));
      ASSERT_NE(block, nullptr);
      // The address marks both ends, where another block would write.
      std::memcpy(block, &block, std::min(bytes, sizeof(block)));
      if (bytes > 2 * sizeof(block)) std::memcpy(block + bytes - sizeof(block), &block, sizeof(block));
      blocks.emplace_back(block, bytes);
    } else {
      const size_t index = random() % blocks.size();
      const auto [block, bytes] = blocks[index];
      EXPECT_EQ(std::memcmp(block, &block, std::min(bytes, sizeof(block))), 0);
      if (bytes > 2 * sizeof(block)) {
        EXPECT_EQ(std::memcmp(block + bytes - sizeof(block), &block, sizeof(block)), 0);
      }
      EXPECT_TRUE(pool.free(block));
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  for (const auto& [block, bytes] : blocks) EXPECT_TRUE(pool.free(block));
  EXPECT_EQ(pool.used_bytes(), 0U);
}

TEST(BlockPool, JoinsNeighboursSoThatALargerBlockFitsWhereTheyWere) {
  BlockPool pool(64 * kMiB, 64 * kMiB);
  void* const first = pool.allocate(2 * kMiB);
  void* const second = pool.allocate(2 * kMiB);
  void* const third = pool.allocate(2 * kMiB);
  pool.free(second);
  pool.free(first);
  EXPECT_EQ(pool.allocate(4 * kMiB), std::min(first, second));
  EXPECT_EQ(pool.used_bytes(), 6 * kMiB);
  pool.free(third);
}

TEST(BlockPool, KeepsNoMoreFreeMemoryThanItMay) {
  BlockPool pool(256 * kMiB, 8 * kMiB);
  std::vector<void*> blocks;
  for (int index = 0; index < 10; ++index) blocks.push_back(pool.allocate(6 * kMiB));
  EXPECT_EQ(pool.used_bytes(), 60 * kMiB);
  for (void* const block : blocks) {
    pool.free(block);
    EXPECT_LE(pool.kept_bytes(), 8 * kMiB);
  }
  auto* const again = static_cast<char*>(pool.allocate(50 * kMiB));
  ASSERT_NE(again, nullptr);
  std::memset(again, 1, 50 * kMiB);  // pages that were given back come again
}

TEST(BlockPool, LendsMemoryOfABlockThatIsNotNeededForAWhile) {
  BlockPool pool(256 * kMiB, 8 * kMiB);
  auto* const block = static_cast<char*>(pool.allocate(40 * kMiB));
  std::memset(block, 1, 40 * kMiB);
  pool.lend(block, 40 * kMiB);
  EXPECT_EQ(pool.lent_bytes(), 40 * kMiB);
  EXPECT_EQ(pool.kept_bytes(), 40 * kMiB);
  auto* const other = static_cast<char*>(pool.allocate(30 * kMiB));
  std::memset(other, 2, 30 * kMiB);
  EXPECT_EQ(pool.kept_bytes(), 10 * kMiB);
  pool.fetch(block, 4 * kMiB);
  EXPECT_EQ(pool.kept_bytes(), 6 * kMiB);
  EXPECT_EQ(pool.lent_bytes(), 36 * kMiB);
  std::memset(block, 3, 40 * kMiB);  // the rest finds memory of its own
  pool.fetch(block, 40 * kMiB);
  EXPECT_EQ(pool.lent_bytes(), 0U);
  for (size_t at = 0; at < 40 * kMiB; at += 1000) ASSERT_EQ(block[at], 3) << at;
  for (size_t at = 0; at < 30 * kMiB; at += 1000) ASSERT_EQ(other[at], 2) << at;
  pool.free(other);
  EXPECT_LE(pool.kept_bytes(), 8 * kMiB);
  pool.lend(block, 40 * kMiB);
  pool.free(block);
  EXPECT_EQ(pool.lent_bytes(), 0U);
  EXPECT_LE(pool.kept_bytes(), 8 * kMiB);
}

TEST(BlockPool, TakesWhatIsFreeElsewhereBeforeNewMemory) {
  BlockPool pool(256 * kMiB, 64 * kMiB);
  auto* const block = static_cast<char*>(pool.allocate(20 * kMiB));
  pool.lend(block, 20 * kMiB);
  std::vector<char*> others;
  for (int index = 0; index < 5; ++index) {
    others.push_back(static_cast<char*>(pool.allocate(4 * kMiB)));
    std::memset(others.back(), index, 4 * kMiB);
  }
  EXPECT_EQ(pool.kept_bytes(), 0U);
  for (const size_t index : {0, 2, 4}) pool.free(others[index]);
  EXPECT_EQ(pool.kept_bytes(), 12 * kMiB);
  pool.fetch(block, 2 * kMiB);
  EXPECT_EQ(pool.kept_bytes(), 10 * kMiB);
  auto* const larger = static_cast<char*>(pool.allocate(9 * kMiB));  // no block that is free has room for it
  std::memset(larger, 7, 9 * kMiB);
  EXPECT_EQ(pool.kept_bytes(), kMiB);
  for (const size_t index : {1, 3}) {
    for (size_t at = 0; at < 4 * kMiB; at += 1000) ASSERT_EQ(others[index][at], static_cast<char>(index));
  }
}

TEST(BlockPool, LeavesMemoryThatIsNotItsOwn) {
  BlockPool pool(16 * kMiB, kMiB);
  int other = 0;
  EXPECT_FALSE(pool.contains(&other));
  EXPECT_FALSE(pool.free(&other));
  EXPECT_FALSE(pool.free(nullptr));
  void* const block = pool.allocate(kMiB);
  EXPECT_TRUE(pool.free(block));
  EXPECT_FALSE(pool.free(block));
  EXPECT_EQ(pool.allocate(17 * kMiB), nullptr);
}

TEST(BlockPool, GivesAChildOfTheProcessNothing) {
  BlockPool pool(16 * kMiB, kMiB);
  auto* const block = static_cast<char*>(pool.allocate(kMiB));
  block[0] = 7;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_right =
        pool.allocate(kMiB) == nullptr && block[0] == 7 && pool.free(block) && block[0] == 7;
    ::_exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(pool.used_bytes(), kMiB);
}

}  // namespace
}  // namespace deepspeed::device
