// Collectives over shared memory between threads: values, sizes, inputs in the arena and beside it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/comm/shm/collectives.h"

#include "tests/comm/shm/thread_ranks.h"
#include "tests/support/error_of.h"

namespace deepspeed::comm::shm {
namespace {

using testing::run_members;
using testing::same_call;

constexpr Reduction kFloatSum{kernels::CombineOp::kSum, kernels::CombineType::kFloat32};
// Small ones, several pieces of the stage, no multiples of anything.
const std::vector<size_t> kSharedNumels{1, 3, 5000, 700'001, 3'000'017};

/// Floats in the arena of the process, or in the heap where `arena` is null.
class Floats {
 public:
  Floats(Arena* arena, size_t numel) : arena_(arena), numel_(numel) {
    if (arena_ != nullptr) {
      data_ = static_cast<float*>(arena_->allocate(numel * sizeof(float)));
      EXPECT_NE(data_, nullptr);
    } else {
      heap_.resize(numel);
      data_ = heap_.data();
    }
  }
  ~Floats() {
    if (arena_ != nullptr) arena_->free(data_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() { return data_; }
  size_t numel() const { return numel_; }
  size_t bytes() const { return numel_ * sizeof(float); }
  float& operator[](size_t i) { return data_[i]; }

 private:
  Arena* arena_;
  size_t numel_;
  std::vector<float> heap_;
  float* data_ = nullptr;
};

float value_of(int rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 1009) / 3;
}

float sum_of_values(int size, size_t i) {
  float sum = value_of(0, i);
  for (int rank = 1; rank < size; ++rank) sum += value_of(rank, i);
  return sum;
}

void fill(Floats& floats, int rank) {
  for (size_t i = 0; i < floats.numel(); ++i) floats[i] = value_of(rank, i);
}

/// How many of [begin, end) are not what `expected` says of their index.
template <class Expected>
size_t count_wrong(Floats& floats, size_t begin, size_t end, const Expected& expected) {
  size_t wrong = 0;
  for (size_t i = begin; i < end; ++i) wrong += floats[i] != expected(i);
  return wrong;
}

enum class Where { kArena, kHeap, kMixed };

Arena* arena_for(Member& member, Where where) {
  const bool in_arena = where == Where::kArena || (where == Where::kMixed && member.rank() % 2 == 0);
  return in_arena ? member.arena() : nullptr;
}

class SharedCollectives : public ::testing::TestWithParam<std::tuple<int, Where>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  Where where() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(RanksAndPlaces, SharedCollectives,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(Where::kArena, Where::kHeap, Where::kMixed)));

TEST_P(SharedCollectives, AllReduceLeavesTheSumOnEveryRank) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    for (const size_t numel : kSharedNumels) {
      Floats floats(arena_for(member, where()), numel);
      fill(floats, member.rank());
      collectives.all_reduce(same_call(numel), floats.data(), floats.bytes(), kFloatSum);
      EXPECT_EQ(count_wrong(floats, 0, numel, [&](size_t i) { return sum_of_values(size(), i); }), 0U)
          << numel;
    }
  });
}

TEST_P(SharedCollectives, ReduceWritesOnlyTheOwnersRanges) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    const auto rank = static_cast<size_t>(member.rank());
    for (const size_t numel : {size_t{5000}, size_t{3'000'017}}) {
      // The first owns nothing, the last most, and some elements nobody.
      std::vector<ByteRange> ranges{{numel * 4, numel * 4}};
      for (size_t r = 1; r < static_cast<size_t>(size()); ++r) ranges.push_back({400 * r, 400 * r + 396});
      ranges.back().end = numel * 4;
      Floats floats(arena_for(member, where()), numel);
      fill(floats, member.rank());
      collectives.reduce(same_call(), floats.data() + ranges[rank].begin / 4, floats.data(), floats.bytes(),
                         ranges, kFloatSum);
      const size_t begin = ranges[rank].begin / 4, end = ranges[rank].end / 4;
      EXPECT_EQ(count_wrong(floats, begin, end, [&](size_t i) { return sum_of_values(size(), i); }), 0U);
      EXPECT_EQ(count_wrong(floats, 0, begin, [&](size_t i) { return value_of(member.rank(), i); }), 0U);
    }
  });
}

TEST_P(SharedCollectives, AllGatherPutsTheInputsInRankOrder) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    for (const size_t numel : kSharedNumels) {
      Floats input(arena_for(member, where()), numel);
      Floats output(nullptr, numel * static_cast<size_t>(size()));
      fill(input, member.rank());
      collectives.all_gather(same_call(numel), output.data(), input.data(), input.bytes());
      const auto expected = [&](size_t i) { return value_of(static_cast<int>(i / numel), i % numel); };
      EXPECT_EQ(count_wrong(output, 0, output.numel(), expected), 0U) << numel;
      // In place: the own part of the output is the input.
      Floats whole(arena_for(member, where()), output.numel());
      float* const own = whole.data() + static_cast<size_t>(member.rank()) * numel;
      std::copy(input.data(), input.data() + numel, own);
      collectives.all_gather(same_call(numel), whole.data(), own, input.bytes());
      EXPECT_EQ(count_wrong(whole, 0, whole.numel(), expected), 0U) << numel;
    }
  });
}

TEST_P(SharedCollectives, BroadcastCopiesFromAnyRoot) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    for (const size_t numel : kSharedNumels) {
      for (int root = 0; root < size(); ++root) {
        Floats floats(arena_for(member, where()), numel);
        fill(floats, member.rank());
        collectives.broadcast(same_call(numel), floats.data(), floats.bytes(), root);
        EXPECT_EQ(count_wrong(floats, 0, numel, [&](size_t i) { return value_of(root, i); }), 0U) << numel;
      }
    }
  });
}

TEST_P(SharedCollectives, AllToAllHandsBlocksOver) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    const auto rank = static_cast<size_t>(member.rank());
    for (const size_t block : {size_t{1}, size_t{777}, size_t{800'003}}) {
      Floats input(arena_for(member, where()), block * static_cast<size_t>(size()));
      Floats output(nullptr, input.numel());
      fill(input, member.rank());
      collectives.all_to_all(same_call(block), output.data(), input.data(), block * 4);
      const auto expected = [&](size_t i) {
        return value_of(static_cast<int>(i / block), rank * block + i % block);
      };
      EXPECT_EQ(count_wrong(output, 0, output.numel(), expected), 0U) << block;
    }
  });
}

TEST_P(SharedCollectives, MayFollowEachOtherWithoutAPause) {
  run_members(size(), [&](Member& member) {
    Collectives collectives(member);
    // More than the ring of posts has places, and a root that runs ahead of its readers.
    for (uint64_t i = 0; i < 300; ++i) {
      Floats floats(arena_for(member, where()), 5000 + i);
      fill(floats, member.rank());
      collectives.broadcast(same_call(i), floats.data(), floats.bytes(), 0);
      EXPECT_EQ(floats[i], value_of(0, i));
      float one = 1;
      collectives.all_reduce(same_call(i), &one, sizeof(one), kFloatSum);
      EXPECT_EQ(one, static_cast<float>(size()));
    }
    collectives.barrier(same_call());
  });
}

TEST(SharedRanks, MayBeFarMoreThanThereAreCores) {
  run_members(9, [](Member& member) {
    Collectives collectives(member);
    for (uint64_t i = 0; i < 20; ++i) {
      Floats floats(member.rank() % 3 == 0 ? member.arena() : nullptr, 20'011);
      fill(floats, member.rank());
      collectives.all_reduce(same_call(i), floats.data(), floats.bytes(), kFloatSum);
      EXPECT_EQ(count_wrong(floats, 0, floats.numel(), [](size_t k) { return sum_of_values(9, k); }), 0U);
    }
  });
}

TEST(SharedRanks, WaitUntilTheTimeoutIfTheyCallDifferently) {
  run_members(2, [](Member& member) {
    Collectives collectives(member);
    float one = 1;
    const Call call{static_cast<uint64_t>(member.rank()), Clock::now() + std::chrono::milliseconds(300)};
    EXPECT_ERROR(CommError, collectives.all_reduce(call, &one, sizeof(one), kFloatSum), "the time is over");
    collectives.barrier({77, Clock::now() + std::chrono::minutes(1)});
  });
}

TEST(SharedRanks, AreNamedAfterTheTimeoutIfTheyDoNotCome) {
  run_members(2, [](Member& member) {
    Collectives collectives(member);
    if (member.rank() == 0) {
      EXPECT_ERROR(CommError, collectives.barrier({1, Clock::now() + std::chrono::milliseconds(200)}),
                   "rank 1 (process ", "did not come");
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  });
}

TEST(SharedRanks, EndAllWaitsIfTheyGiveUp) {
  run_members(3, [](Member& member) {
    Collectives collectives(member);
    if (member.rank() == 1) return member.give_up();
    EXPECT_ERROR(CommError, collectives.barrier(same_call()), "gave up the group");
  });
}

TEST(SharedRanks, AreNamedIfTheyLeave) {
  run_members(2, [](Member& member) {
    Collectives collectives(member);
    collectives.barrier(same_call());
    if (member.rank() == 1) return;
    EXPECT_ERROR(CommError, collectives.barrier(same_call()), "rank 1 (process ", "left the group");
  });
}

TEST(SharedRanks, AreNamedIfTheyPostMemoryOutsideTheirArena) {
  constexpr size_t kBytes = size_t{1} << 20;
  const size_t end = Arena::of_process()->bytes();
  for (const uint64_t offset : {uint64_t{end}, uint64_t{end - kBytes + 4}, kStaged - 1, kStaged - kBytes}) {
    run_members(2, [&](Member& member) {
      Collectives collectives(member);
      if (member.rank() == 1) {
        member.own().ring[1] = {1, kBytes, offset, 1};
        member.own().posted.advance(1);
        member.own().reduced.advance(1);
        EXPECT_ERROR(CommError, member.wait_for_the_end(1, Clock::now() + std::chrono::minutes(1)),
                     "rank 0 (process ", "left the group");
        return;
      }
      std::vector<float> data(kBytes / sizeof(float));
      EXPECT_ERROR(CommError, collectives.all_reduce(same_call(1), data.data(), kBytes, kFloatSum),
                   "rank 1 (process ", "outside its memory");
    });
  }
}

TEST(SharedRanks, AreNamedIfTheyBlameARankOutsideTheGroup) {
  run_members(2, [](Member& member) {
    if (member.rank() == 1) {
      member.own().blamed_rank.store(4711);
      member.own().presence.store(Presence::kGaveUp);
      return;
    }
    EXPECT_ERROR(CommError, Collectives(member).barrier(same_call()), "rank 1 (process ",
                 "gave up the group");
  });
}

}  // namespace
}  // namespace deepspeed::comm::shm
