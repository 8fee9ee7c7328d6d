#include "deepspeed/zero/gradients/row_exchange.h"

#include <limits>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::zero {
namespace {

// Each rank touches other rows, some more than once. Integers add up without rounding.
at::Tensor gradient_of(int rank, int64_t rows, int64_t columns, int64_t touched) {
  at::Tensor values = at::zeros({rows, columns});
  for (int64_t i = 0; i < touched; ++i) {
    values.select(0, (7 * i + 3 * rank) % rows).add_(at::arange(1, columns + 1, at::kFloat) * (rank + 1));
  }
  return values;
}

TEST(SumRows, IsTheSumWhateverTheNumberOfTouchedRows) {
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t touched : {0, 1, 2, 5, 40, 100}) {
        at::Tensor expected = at::zeros({100, 3});
        for (int rank = 0; rank < world.size(); ++rank)
          expected += gradient_of(rank, 100, 3, rank == 1 ? 0 : touched);  // one rank has none
        at::Tensor flat = at::full({310}, 5.0);
        const at::Tensor values = flat.narrow(0, 5, 300).view({100, 3});
        values.copy_(gradient_of(world.rank(), 100, 3, world.rank() == 1 ? 0 : touched));
        sum_rows(world.group(), values, at::kFloat);
        EXPECT_TRUE(at::equal(values, expected)) << touched;
        EXPECT_EQ(flat.narrow(0, 0, 5).sum().item<float>() + flat.narrow(0, 305, 5).sum().item<float>(),
                  50.0);
      }
    });
  }
}

TEST(SumRows, KeepsWhatIsNoNumberAndRoundsToTheDtypeThatTravels) {
  testing::run_ranks(2, [](comm::World& world) {
    at::Tensor values = at::zeros({50, 2});
    values[world.rank()][0] = world.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F + 1e-4F;
    sum_rows(world.group(), values, at::kBFloat16);
    EXPECT_TRUE(std::isnan(values[0][0].item<float>()));
    EXPECT_EQ(values[1][0].item<float>(), 1.0F);
    EXPECT_EQ(values.narrow(0, 2, 48).abs().sum().item<float>(), 0.0F);
  });
}

}  // namespace
}  // namespace deepspeed::zero
