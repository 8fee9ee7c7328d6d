#include "deepspeed/comm/compressed/compressed_all_reduce.h"

#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/sign_compression.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using comm::CompressedAllReduce;

at::Tensor values_of(int rank, int64_t numel, int step) {
  return (at::arange(numel) * 0.37 + double(5 * rank + 3 * step)).sin() * (1 + 0.1 * rank);
}

// Computes DeepSpeed's compressed_allreduce() in one process for ranks with given errors.
struct Formula {
  std::vector<at::Tensor> worker_errors;  // [rank], (numel)
  at::Tensor server_error;                // (numel): the chunks of all ranks

  static at::Tensor compressed(const at::Tensor& x, at::Tensor& error) {
    const at::Tensor wanted = (x + error).view({-1, kernels::kSignBlock});
    const at::Tensor scale = wanted.square().mean(1, true).sqrt();
    const at::Tensor sent = at::where(wanted >= 0, scale.expand_as(wanted), -scale.expand_as(wanted));
    error = (wanted - sent).view({-1});
    return sent.reshape({-1});
  }
  at::Tensor mean(const std::vector<at::Tensor>& values) {
    at::Tensor sum = at::zeros_like(values[0]);
    for (size_t rank = 0; rank < values.size(); ++rank) sum += compressed(values[rank], worker_errors[rank]);
    return compressed(sum / double(values.size()), server_error);
  }
};

TEST(CompressedAllReduce, IsDeepSpeedsFormulaWithErrorsOnBothWays) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](comm::World& world) {
      const int64_t numel = 2 * ranks * kernels::kSignBlock;
      CompressedAllReduce reduce(world.group(), numel);
      Formula formula{std::vector<at::Tensor>(size_t(ranks), at::zeros({numel})), at::zeros({numel})};
      for (int step = 0; step < 4; ++step) {
        std::vector<at::Tensor> all;
        for (int rank = 0; rank < ranks; ++rank) all.push_back(values_of(rank, numel, step).to(at::kFloat));
        const at::Tensor values = all[size_t(world.rank())].clone();
        reduce.mean(values);
        EXPECT_TRUE(at::allclose(values, formula.mean(all), 1e-3, 1e-4)) << "step " << step;
      }
    });
  }
}

TEST(CompressedAllReduce, GivesAllRanksTheSameBitsForEverySize) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (const int64_t numel : {1, 100, 2048, 2049, 20000}) {
        CompressedAllReduce reduce(world.group(), numel);
        const at::Tensor values = values_of(world.rank(), numel, 0).to(at::kFloat);
        const at::Tensor own = values.clone();
        reduce.mean(values);
        at::Tensor of_first = values.clone();
        if (world.size() > 1) world.group().broadcast(of_first, 0);
        EXPECT_TRUE(of_first.equal(values));
        EXPECT_TRUE(world.size() > 1 || values.equal(own));
      }
    });
  }
}

TEST(CompressedAllReduce, MakesUpForItsErrorsUntilTheyAreForgotten) {
  run_ranks(2, [](comm::World& world) {
    constexpr int64_t kNumel = 5000;
    const auto mean_error = [&](bool forgets) {
      CompressedAllReduce reduce(world.group(), kNumel);
      at::Tensor got = at::zeros({kNumel}), expected = at::zeros({kNumel});
      for (int step = 0; step < 60; ++step) {
        const at::Tensor values = values_of(world.rank(), kNumel, 0).to(at::kFloat);
        expected += (values_of(0, kNumel, 0) + values_of(1, kNumel, 0)) / 2;
        reduce.mean(values);
        got += values;
        if (forgets) reduce.reset();
      }
      return ((got - expected) / 60).abs().mean().item<double>();
    };
    const double with = mean_error(false), without = mean_error(true);
    EXPECT_LT(with, 0.2 * without);
  });
}

TEST(CompressedAllReduce, SendsAThirtiethOfAnAllReduceInFp32) {
  run_ranks(2, [](comm::World& world) {
    constexpr int64_t kNumel = 1 << 20;
    CompressedAllReduce reduce(world.group(), kNumel);
    const double all_reduce = 2 * double(kNumel) / 2 * 4;  // both directions of half of it
    EXPECT_LT(double(reduce.sent_bytes()), 0.033 * all_reduce);
    EXPECT_EQ(reduce.bytes(), 0);
    reduce.mean(at::ones({kNumel}));
    EXPECT_EQ(reduce.bytes(), int64_t{kNumel} * 4 * 3 / 2);
  });
}

TEST(CompressedAllReduce, GoesOnWithErrorsThatFitAndWithNoneOtherwise) {
  run_ranks(2, [](comm::World& world) {
    constexpr int64_t kNumel = 5000;
    CompressedAllReduce first(world.group(), kNumel), second(world.group(), kNumel);
    EXPECT_FALSE(first.errors().first.defined());
    first.mean(values_of(world.rank(), kNumel, 0).to(at::kFloat));
    const auto [worker, server] = first.errors();
    EXPECT_TRUE(second.load_errors(worker, server));
    const at::Tensor one = values_of(world.rank(), kNumel, 1).to(at::kFloat), other = one.clone();
    first.mean(one);
    second.mean(other);
    EXPECT_TRUE(one.equal(other));
    EXPECT_FALSE(second.load_errors(worker, server.narrow(0, 0, 2048)));
    EXPECT_FALSE(second.load_errors(worker, {}));
    EXPECT_EQ(second.bytes(), 0);
  });
}

}  // namespace
}  // namespace deepspeed::testing
