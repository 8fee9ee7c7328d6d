// Runs every collective on 1 to 4 ranks, with values that reveal a misplaced block.
#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::run_ranks;

const auto kAllTypes = {at::kByte, at::kChar,     at::kShort, at::kInt,   at::kLong,
                        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4));

// Returns 4 elements unique to the rank and block, small enough for every dtype's sum.
at::Tensor marked(int rank, int block, at::ScalarType type) {
  return at::arange(4).add(8 * block + rank).to(type);
}

#define EXPECT_SAME(actual, expected) \
  EXPECT_TRUE(at::equal(actual, expected)) << actual << "\nexpected\n" << (expected)

TEST_P(Collectives, AllReduceSumsEveryDtype) {
  run_ranks(GetParam(), [](World& world) {
    const int n = world.size();
    for (const auto type : kAllTypes) {
      auto tensor = marked(world.rank(), 0, type);
      world.group().all_reduce(tensor);
      EXPECT_SAME(tensor, (at::arange(4) * n + n * (n - 1) / 2).to(type));
    }
  });
}

TEST_P(Collectives, AllReduceTakesMaximumMinimumAndProduct) {
  run_ranks(GetParam(), [](World& world) {
    const int n = world.size();
    for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
      auto largest = marked(world.rank(), 0, type);
      world.group().all_reduce(largest, ReduceOp::kMax);
      EXPECT_SAME(largest, marked(n - 1, 0, type));
      auto smallest = marked(world.rank(), 0, type);
      world.group().all_reduce(smallest, ReduceOp::kMin);
      EXPECT_SAME(smallest, marked(0, 0, type));
      auto product = at::full({3}, world.rank() + 1).to(type);
      world.group().all_reduce(product, ReduceOp::kProduct);
      int64_t factorial = 1;
      for (int i = 1; i <= n; ++i) factorial *= i;
      EXPECT_SAME(product, at::full({3}, factorial).to(type));
    }
  });
}

TEST_P(Collectives, BroadcastComesFromTheRoot) {
  run_ranks(GetParam(), [](World& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (const auto type : kAllTypes) {
        auto tensor = marked(world.rank(), 1, type);
        world.group().broadcast(tensor, root);
        EXPECT_SAME(tensor, marked(root, 1, type));
      }
    }
  });
}

TEST_P(Collectives, AllGatherOrdersBlocksByRank) {
  run_ranks(GetParam(), [](World& world) {
    const int n = world.size();
    for (const auto type : kAllTypes) {
      std::vector<at::Tensor> blocks;
      for (int rank = 0; rank < n; ++rank) blocks.push_back(marked(rank, rank, type));
      auto output = at::zeros({4 * n}, type);
      world.group().all_gather(output, marked(world.rank(), world.rank(), type));
      EXPECT_SAME(output, at::cat(blocks));
      auto in_place = at::zeros({n, 4}, type);
      in_place[world.rank()].copy_(marked(world.rank(), world.rank(), type));
      world.group().all_gather(in_place, in_place[world.rank()]);
      EXPECT_SAME(in_place, at::stack(blocks));
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsBlockAndKeepsTheInput) {
  run_ranks(GetParam(), [](World& world) {
    const int n = world.size();
    for (const auto type : kAllTypes) {
      std::vector<at::Tensor> blocks;
      for (int block = 0; block < n; ++block) blocks.push_back(marked(world.rank(), block, type));
      const auto input = at::cat(blocks);
      const auto before = input.clone();
      auto output = at::zeros({4}, type);
      world.group().reduce_scatter(output, input);
      EXPECT_SAME(output, ((at::arange(4) + 8 * world.rank()) * n + n * (n - 1) / 2).to(type));
      EXPECT_SAME(input, before);
    }
  });
}

TEST_P(Collectives, AllToAllTransposesBlocks) {
  run_ranks(GetParam(), [](World& world) {
    for (const auto type : kAllTypes) {
      std::vector<at::Tensor> sent, expected;
      for (int i = 0; i < world.size(); ++i) {
        sent.push_back(marked(world.rank(), i, type));
        expected.push_back(marked(i, world.rank(), type));
      }
      auto output = at::zeros({4 * world.size()}, type);
      world.group().all_to_all(output, at::cat(sent));
      EXPECT_SAME(output, at::cat(expected));
    }
  });
}

TEST_P(Collectives, ScalarsAndTextsComeInRankOrder) {
  run_ranks(GetParam(), [](World& world) {
    const auto& group = world.group();
    const int n = world.size();
    const auto values = group.all_gather_scalar(world.rank() + 0.5);
    ASSERT_EQ(values.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) EXPECT_EQ(values[i], i + 0.5);
    EXPECT_EQ(group.all_reduce_scalar(world.rank() + 1.0), n * (n + 1) / 2.0);
    EXPECT_EQ(group.all_reduce_scalar(world.rank(), ReduceOp::kMax), n - 1.0);
    const std::string own = world.rank() == 0 ? "" : std::string(world.rank(), 'a') + std::string(1, '\0');
    const auto texts = group.all_gather_text(own);
    for (int i = 1; i < n; ++i) EXPECT_EQ(texts[i], std::string(i, 'a') + std::string(1, '\0'));
    EXPECT_EQ(texts[0], "");
    EXPECT_EQ(group.broadcast_text("from " + std::to_string(world.rank()), n - 1),
              "from " + std::to_string(n - 1));
    EXPECT_EQ(group.broadcast_text("", 0), "");
    group.barrier();
  });
}

TEST(PointToPoint, SendsAndReceivesByTag) {
  run_ranks(3, [](World& world) {
    const int next = (world.rank() + 1) % 3;
    const int previous = (world.rank() + 2) % 3;
    auto received = at::zeros({4}, at::kBFloat16);
    if (world.rank() == 0) {
      world.group().send(marked(0, 1, at::kBFloat16), next, 7);
      world.group().recv(received, previous, 7);
    } else {
      world.group().recv(received, previous, 7);
      world.group().send(marked(world.rank(), 1, at::kBFloat16), next, 7);
    }
    EXPECT_SAME(received, marked(previous, 1, at::kBFloat16));
  });
}

}  // namespace
}  // namespace deepspeed::comm
