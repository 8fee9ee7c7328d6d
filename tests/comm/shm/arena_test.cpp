// Memory that peers can read: blocks, their reuse, want of memory, children of the process.
#include "deepspeed/comm/shm/arena.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/shm/thread_ranks.h"
#include "tests/support/error_of.h"

namespace deepspeed::comm::shm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// Runs the body in a child, which ends with its result. Returns that.
int result_in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns the bytes of huge pages in the mapping of the address, as the system counts them.
size_t huge_bytes_at(const void* address) {
  std::ifstream mappings("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t begin = 0, end = 0;
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      is_it = at >= begin && at < end;
    } else if (is_it && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1) {
      return kib << 10;
    }
  }
  return 0;
}

TEST(SharedArena, HandsOutBlocksThatDoNotMeet) {
  Arena arena(64 * kMiB);
  auto* const first = static_cast<char*>(arena.allocate(5000));
  auto* const second = static_cast<char*>(arena.allocate(kMiB));
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  std::memset(first, 1, 5000);
  std::memset(second, 2, kMiB);
  EXPECT_EQ(first[4999], 1);
  EXPECT_EQ(arena.used_bytes(), (4999 / device::page_bytes() + 1) * device::page_bytes() + kMiB);
  ASSERT_TRUE(arena.offset_of(second + 10, kMiB - 10).has_value());
  EXPECT_EQ(*arena.offset_of(second + 10, 5) - *arena.offset_of(second, 5), 10U);
  EXPECT_FALSE(arena.offset_of(&arena, 1).has_value());
  arena.free(first);
  arena.free(second);
  EXPECT_EQ(arena.used_bytes(), 0U);
}

TEST(SharedArena, OfAnotherSystemHandsOutItsLargerPages) {
  constexpr size_t kPage = size_t{64} << 10;
  Arena arena(64 * kMiB + 4096, kPage);
  EXPECT_EQ(arena.bytes(), 64 * kMiB);
  for (const size_t bytes : {size_t{1}, kPage, kPage + 1, 3 * kMiB + 1}) {
    const size_t before = arena.used_bytes();
    const auto* const block = static_cast<char*>(arena.allocate(bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(*arena.offset_of(block, bytes) % kPage, 0U) << bytes;
    EXPECT_EQ(arena.used_bytes() - before, (bytes + kPage - 1) / kPage * kPage) << bytes;
  }
}

TEST(SharedArena, UsesWhatWasFreedAgain) {
  Arena arena(64 * kMiB);
  void* const before = arena.allocate(20 * kMiB);
  arena.free(before);
  for (int i = 0; i < 100; ++i) {
    void* const a = arena.allocate(8 * kMiB);
    void* const b = arena.allocate(12 * kMiB);
    EXPECT_EQ(a, before);
    EXPECT_NE(b, nullptr);
    arena.free(a);
    arena.free(b);
  }
}

TEST(SharedArena, SaysThatItIsFull) {
  Arena arena(64 * kMiB);
  void* const most = arena.allocate(60 * kMiB);
  EXPECT_NE(most, nullptr);
  EXPECT_EQ(arena.allocate(8 * kMiB), nullptr);
  arena.free(most);
  EXPECT_NE(arena.allocate(8 * kMiB), nullptr);
}

TEST(SharedArena, BeginsLargeBlocksWithAHugePage) {
  Arena arena(64 * kMiB);
  ASSERT_NE(arena.allocate(5000), nullptr);
  const auto* const block = static_cast<char*>(arena.allocate(9 * kMiB));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % device::kHugePage, 0U);
  void* const small = arena.allocate(kMiB);  // fits before it
  EXPECT_LT(small, block);
}

TEST(SharedArena, LiesInHugePagesWhereTheSystemMakesThem) {
  const auto memory = make_memory(device::kHugePage);
  const auto mapping = map_memory(memory, device::kHugePage, MappingUse::kOwn);
  add_huge_pages(memory, *mapping, 0, device::kHugePage);
  mapping->data()[0] = 1;
  if (huge_bytes_at(mapping->data()) == 0) GTEST_SKIP() << "this system makes no huge pages of shared memory";
  Arena arena(64 * kMiB);
  auto* const block = static_cast<char*>(arena.allocate(8 * kMiB));
  std::memset(block, 1, 8 * kMiB);
  EXPECT_EQ(huge_bytes_at(block), 8 * kMiB);
}

TEST(SharedArena, MakesDoWithFewerAddressesWhereALimitAsksForIt) {
  EXPECT_EQ(result_in_child([] {
              const rlimit limit{256 * kMiB, 256 * kMiB};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              Arena arena(1024 * kMiB);
              return arena.bytes() <= 256 * kMiB && arena.allocate(kMiB) != nullptr;
            }),
            0);
}

TEST(SharedArena, IsAnErrorAndNoSignalWhereALimitForbidsIt) {
  EXPECT_EQ(result_in_child([] {
              const rlimit limit{kMiB, kMiB};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              const auto text = testing::error_of<CommError>([] { Arena arena(1024 * kMiB); });
              return text.find("RLIMIT_FSIZE") != std::string::npos;
            }),
            0);
}

TEST(SharedArena, OfAParentIsReadInAChildButNotHandedOut) {
  const auto arena = Arena::of_process();
  auto* const block = static_cast<int*>(arena->allocate(4096));
  *block = 42;
  EXPECT_EQ(result_in_child([&] {
              arena->free(block);  // does nothing
              return *block == 42 && arena->allocate(10) == nullptr && Arena::of_process() != arena;
            }),
            0);
  EXPECT_EQ(*block, 42);
  arena->free(block);
}

MeetingResult meet_as(testing::ThreadBoard& board, int rank, const std::string& machine,
                      const std::string& refusal = "") {
  MeetingPlan plan;
  plan.rank = rank;
  plan.names = {10, 11};
  plan.machine = machine;
  plan.refusal = refusal;
  plan.arena = Arena::of_process();
  return meet(board.board(), std::move(plan));
}

TEST(SharedMeeting, OfRanksOnTwoMachinesIsNone) {
  testing::ThreadBoard board;
  testing::run_threads(2, [&](int rank) {
    const auto met = meet_as(board, rank, "machine " + std::to_string(rank));
    EXPECT_EQ(met.member, nullptr);
    EXPECT_FALSE(met.is_one_machine);
  });
}

TEST(SharedMeeting, IsNoneWhereOneRankRefuses) {
  testing::ThreadBoard board;
  testing::run_threads(2, [&](int rank) {
    const auto met = meet_as(board, rank, "here", rank == 1 ? "it may\nnot" : "");
    EXPECT_EQ(met.member, nullptr);
    EXPECT_TRUE(met.is_one_machine);
    if (rank == 0) {
      EXPECT_EQ(met.reason, "rank 11: it may not");
    }
  });
}

}  // namespace
}  // namespace deepspeed::comm::shm
