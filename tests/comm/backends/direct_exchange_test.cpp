// Sums by direct exchange: order of terms, odd sizes, several pieces, uneven owners.
#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

class DirectSums : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DirectSums, ::testing::Values(2, 3, 4));

// More than one piece of 1 MiB in fp32 and in 16 bits, and not a round number.
constexpr int64_t kManyPieces = 3'000'017;

/// Returns values of very different size, so that another order of additions gives different bits.
at::Tensor term(int rank, int64_t numel, at::ScalarType type) {
  const at::Tensor x = at::arange(numel, at::kFloat).add(37 * rank).remainder(1009).sub(504);
  return (x * std::pow(10.0, rank % 3) / 7).to(type);
}

/// Returns the sum in rank order. 16-bit types are summed in fp32 and rounded once.
at::Tensor sum_of_terms(int size, int64_t numel, at::ScalarType type) {
  const bool narrow = type == at::kHalf || type == at::kBFloat16;
  at::Tensor sum = term(0, numel, type).to(narrow ? at::kFloat : type, false, true);
  for (int rank = 1; rank < size; ++rank) sum.add_(term(rank, numel, type));
  return sum.to(type);
}

TEST_P(DirectSums, AllReduceAddsInTheOrderOfTheRanks) {
  run_ranks(GetParam(), [](World& world) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const int64_t numel : {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{1000}, kManyPieces}) {
        const at::Tensor tensor = term(world.rank(), numel, type);
        world.group().all_reduce(tensor);
        EXPECT_TRUE(at::equal(tensor, sum_of_terms(world.size(), numel, type))) << type << " " << numel;
      }
    }
  });
}

TEST_P(DirectSums, ReduceScatterGivesTheSameBitsAndLeavesItsInput) {
  run_ranks(GetParam(), [](World& world) {
    const int64_t block = kManyPieces / world.size();
    const int64_t numel = block * world.size();
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor input = term(world.rank(), numel, type);
      const at::Tensor output = at::empty({block}, type);
      world.group().reduce_scatter(output, input);
      EXPECT_TRUE(
          at::equal(output, sum_of_terms(world.size(), numel, type).narrow(0, world.rank() * block, block)));
      EXPECT_TRUE(at::equal(input, term(world.rank(), numel, type)));
    }
  });
}

TEST_P(DirectSums, OwnersGetTheSumOfTheirIntervalWhateverItsBounds) {
  run_ranks(GetParam(), [](World& world) {
    const int size = world.size();
    // Rank 0 owns nothing and the last rank most; some elements have no owner.
    std::vector<Interval> owned{{2 * kManyPieces, 2 * kManyPieces}};
    for (int64_t rank = 1; rank < size; ++rank) owned.push_back({100 * rank, 100 * rank + 99});
    owned.back().end = kManyPieces;
    const at::Tensor expected = sum_of_terms(size, kManyPieces, at::kFloat);
    const at::Tensor tensor = term(world.rank(), kManyPieces, at::kFloat);
    world.group().reduce_to_owners(tensor, owned);
    const Interval own = owned[world.rank()];
    if (own.empty()) return;
    EXPECT_TRUE(
        at::equal(tensor.narrow(0, own.begin, own.numel()), expected.narrow(0, own.begin, own.numel())));
  });
}

TEST_P(DirectSums, OperationsUnderWayTogetherDoNotMix) {
  run_ranks(GetParam(), [](World& world) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int64_t i = 0; i < 20; ++i) {
      tensors.push_back(term(world.rank(), 1000 + i, at::kFloat));
      works.push_back(world.group().start_all_reduce(tensors.back()));
    }
    std::reverse(works.begin(), works.end());
    for (Work& work : works) work.wait();
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(at::equal(tensors[i], sum_of_terms(world.size(), 1000 + i, at::kFloat)));
    }
  });
}

TEST(ReduceToOwners, RefusesAResultThatDoesNotFit) {
  run_ranks(2, [](World& world) {
    const std::vector<Interval> owned{{0, 2}, {2, 4}};
    const auto start = [&](const at::Tensor& tensor, const OwnSum& own) {
      return error_of<UsageError>([&] { world.group().start_reduce_to_owners(tensor, owned, own); });
    };
    EXPECT_THAT(start(at::ones({4}), {at::zeros({3})}),
                HasSubstr("the result has 3 elements of Float on cpu, expected the 2 of Float on cpu"));
    EXPECT_THAT(start(at::ones({4}), {at::zeros({2}, at::kDouble)}), HasSubstr("Double"));
    EXPECT_THAT(start(at::ones({4}, at::kLong), {at::zeros({2}, at::kLong), 0.5}),
                HasSubstr("the factor is 0.5 with integers"));
  });
}

TEST(ReduceToOwners, RefusesIntervalsThatDoNotFit) {
  run_ranks(2, [](World& world) {
    const at::Tensor tensor = at::zeros({10});
    const auto refuses = ThrowsMessage<UsageError>(HasSubstr("2 ascending intervals inside the 10 elements"));
    EXPECT_THAT([&] { world.group().reduce_to_owners(tensor, {{0, 10}}); }, refuses);
    EXPECT_THAT(([&] { world.group().reduce_to_owners(tensor, {{0, 6}, {5, 10}}); }), refuses);
    EXPECT_THAT(([&] { world.group().reduce_to_owners(tensor, {{0, 5}, {5, 11}}); }), refuses);
  });
}

TEST(Group, MayBeLeftAsSoonAsItIsMade) {
  run_ranks(4, [](World& world) {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(world.new_group({0, 1, 2, 3}, "short").size(), 4);
  });
}

}  // namespace
}  // namespace deepspeed::comm
