#include "deepspeed/zero/gradients/quantized_sum.h"

#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/block_quantization.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using zero::LocoOptions;
using zero::QuantizedSum;

QuantizedSum make_sum(const comm::World& world, int per_node, std::optional<LocoOptions> loco = {}) {
  const int node = world.rank() / per_node, place = world.rank() % per_node;
  std::vector<int> own, across;
  for (int i = 0; i < per_node; ++i) own.push_back(node * per_node + i);
  for (int i = 0; i < world.size() / per_node; ++i) across.push_back(i * per_node + place);
  const std::string shape = std::to_string(per_node);
  return {world.own_group("node" + shape, "test", own), world.own_group("across" + shape, "test", across),
          loco};
}

// Returns a rank's contribution, with one scale per owner's block.
at::Tensor contribution(int rank, int num_ranks, int64_t numel, int step, at::ScalarType dtype) {
  const at::Tensor flat = (at::arange(num_ranks * numel) * 0.7 + double(3 * rank + 11 * step)).sin();
  return (flat * (1 + rank)).to(dtype);
}

at::Tensor exact_sum(const comm::World& world, int64_t numel, int step, at::ScalarType dtype) {
  at::Tensor sum = at::zeros({numel});
  for (int rank = 0; rank < world.size(); ++rank)
    sum += contribution(rank, world.size(), numel, step, dtype)
               .narrow(0, world.rank() * numel, numel)
               .to(at::kFloat);
  return sum;
}

// Contributions are at most 1 + rank. Each of two roundings errs by at most an eighth of the largest value.
double bound(const comm::World& world, int per_node) {
  double within = 0, between = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank != world.rank()) within += (1.0 + rank) / 8;
  }
  const int nodes = world.size() / per_node;
  for (int node = 0; node < nodes; ++node) {
    double largest = 0;
    for (int place = 0; place < per_node; ++place) largest += (1.0 + node * per_node + place) * 1.125;
    if (node != world.rank() / per_node) between += largest / 8;
  }
  return (per_node > 1 ? within : 0.0) + between;
}

TEST(QuantizedSum, ErrsByNoMoreThanItsRoundingsOnEveryShapeOfNodes) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    run_ranks(num_ranks, [&](comm::World& world) {
      for (const int per_node : {1, 2, 3, 4}) {
        if (world.size() % per_node != 0) continue;
        QuantizedSum sum = make_sum(world, per_node);
        for (const int64_t numel : {1, 5, 2048, 5000}) {
          for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
            const at::Tensor values = contribution(world.rank(), world.size(), numel, 0, dtype);
            const at::Tensor before = values.clone();
            sum.start(values, 0).wait();
            const at::Tensor own = values.narrow(0, world.rank() * numel, numel).to(at::kFloat);
            const at::Tensor error = (own - exact_sum(world, numel, 0, dtype)).abs();
            const double rounding = dtype == at::kFloat ? 1e-5 : 0.1;
            EXPECT_LE(error.max().item<double>(), bound(world, per_node) * 1.001 + rounding);
            EXPECT_TRUE(world.size() == 1 || numel < 5000 || error.max().item<double>() > 0.01);
            at::Tensor others = values.clone();
            others.narrow(0, world.rank() * numel, numel)
                .copy_(before.narrow(0, world.rank() * numel, numel));
            EXPECT_TRUE(others.equal(before)) << "a block of another owner changed";
          }
        }
      }
    });
  }
}

TEST(QuantizedSum, IsTheOwnContributionAndTheDequantizedOthersOnOneNode) {
  run_ranks(2, [](comm::World& world) {
    constexpr int64_t kNumel = 3000;
    QuantizedSum sum = make_sum(world, 2);
    const int other = 1 - world.rank();
    const at::Tensor theirs =
        contribution(other, 2, kNumel, 0, at::kFloat).narrow(0, world.rank() * kNumel, kNumel).contiguous();
    const at::Tensor packed =
        at::empty({kernels::quantized_bytes(kNumel, kernels::BlockCode::kInt4)}, at::kByte);
    kernels::quantize_blocks(theirs, packed, kernels::BlockCode::kInt4);
    const at::Tensor rounded = at::empty({kNumel});
    kernels::dequantize_blocks(packed, rounded, kernels::BlockCode::kInt4);
    const at::Tensor values = contribution(world.rank(), 2, kNumel, 0, at::kFloat);
    const at::Tensor expected = values.narrow(0, world.rank() * kNumel, kNumel) + rounded;
    sum.start(values, 0).wait();
    EXPECT_TRUE(values.narrow(0, world.rank() * kNumel, kNumel).equal(expected));
  });
}

TEST(QuantizedSum, TellsOwnersOfNumbersThatAreNotFinite) {
  run_ranks(4, [](comm::World& world) {
    QuantizedSum sum = make_sum(world, 2, LocoOptions{});
    for (const float bad : {INFINITY, NAN}) {
      at::Tensor values = at::ones({4 * 8});
      if (world.rank() == 1) values.narrow(0, 2 * 8, 8)[3] = bad;
      sum.start(values, 0).wait();
      EXPECT_EQ(values.narrow(0, world.rank() * 8, 8).isfinite().all().item<bool>(), world.rank() != 2);
    }
    at::Tensor values = at::ones({4 * 8});
    sum.start(values, 0).wait();
    EXPECT_TRUE(values.narrow(0, world.rank() * 8, 8).isfinite().all().item<bool>()) << "an error stayed";
  });
}

// Returns the mean error of the sums of many equal gradients.
double drift(const comm::World& world, std::optional<LocoOptions> loco, double factor_after_ten = 1.0) {
  constexpr int64_t kNumel = 2100;
  QuantizedSum sum = make_sum(world, 2, loco);
  at::Tensor total = at::zeros({kNumel}), exact = at::zeros({kNumel});
  for (int step = 0; step < 40; ++step) {
    const double scale = step < 10 ? 1.0 : factor_after_ten;
    if (step == 10 && factor_after_ten != 1.0) sum.scale_errors(factor_after_ten);
    const at::Tensor values = contribution(world.rank(), world.size(), kNumel, 0, at::kFloat) * scale;
    sum.start(values, 0).wait();
    total += values.narrow(0, world.rank() * kNumel, kNumel) / scale;
    exact += exact_sum(world, kNumel, 0, at::kFloat);
  }
  return ((total - exact).abs().mean() / 40).item<double>();
}

TEST(QuantizedSum, ErrorFeedbackMakesUpForWhatRoundingTook) {
  run_ranks(4, [](comm::World& world) {
    const double plain = drift(world, {});
    EXPECT_LT(drift(world, LocoOptions{.err_beta = 0.0}), 0.25 * plain);
    EXPECT_LT(drift(world, LocoOptions{.err_beta = 0.0}, 64.0), 0.25 * plain);
    // Errors that are forgotten each time correct nothing.
    EXPECT_NEAR(drift(world, LocoOptions{.reset_T = 1}), plain, 1e-4 * plain);
  });
}

TEST(QuantizedSum, GoesOnWithTheErrorsOfAnotherOfItsLayoutAlone) {
  run_ranks(4, [](comm::World& world) {
    for (const int per_node : {1, 2, 4}) {
      constexpr int64_t kNumel = 700;
      QuantizedSum sum = make_sum(world, per_node, LocoOptions{.reset_T = 4});
      const auto next = [&](QuantizedSum& one, int step, size_t key) {
        const at::Tensor values = contribution(world.rank(), 4, kNumel, step, at::kFloat);
        one.start(values, key).wait();
        return values;
      };
      for (const int step : {0, 1, 2}) {
        next(sum, step, 1);
        next(sum, step, 3);
      }
      zero::NamedErrors saved = sum.errors();
      for (auto& [name, tensor] : saved) tensor = tensor.clone();
      QuantizedSum resumed = make_sum(world, per_node, LocoOptions{.reset_T = 4});
      next(resumed, 7, 2);  // leaves errors that loading replaces
      EXPECT_TRUE(resumed.load_errors(saved, {9, kNumel, 11, kNumel}, at::kCPU));
      EXPECT_EQ(resumed.bytes(), sum.bytes());
      for (const int step : {3, 4, 5})  // the errors are forgotten in between
        for (const size_t key : {size_t{1}, size_t{3}})
          EXPECT_TRUE(next(resumed, step, key).equal(next(sum, step, key))) << step << " of " << key;
      EXPECT_FALSE(resumed.load_errors(saved, {9, kNumel, 11, kNumel + 1}, at::kCPU)) << "another size";
      EXPECT_EQ(resumed.bytes(), 0);
      EXPECT_FALSE(resumed.load_errors(saved, {9, kNumel}, at::kCPU)) << "fewer sums";
      QuantizedSum elsewhere = make_sum(world, per_node == 4 ? 1 : 2 * per_node, LocoOptions{});
      EXPECT_FALSE(elsewhere.load_errors(saved, {9, kNumel, 11, kNumel}, at::kCPU)) << "other nodes";
    }
  });
}

TEST(QuantizedSum, CountsAndForgetsItsErrors) {
  run_ranks(2, [](comm::World& world) {
    QuantizedSum sum = make_sum(world, 1, LocoOptions{});
    const at::Tensor values = at::ones({2 * 100});
    sum.start(values, 0).wait();
    EXPECT_EQ(sum.bytes(), kernels::quantized_bytes(100, kernels::BlockCode::kInt8));
    sum.scale_errors(0.0);
    EXPECT_EQ(sum.bytes(), 0);
  });
}

}  // namespace
}  // namespace deepspeed::testing
