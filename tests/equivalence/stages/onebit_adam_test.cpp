// 1-bit Adam: its warm-up is Adam, its exchange is small, and its training ends where Adam's does.
#include <gtest/gtest.h>

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(OneBitAdam, WarmsUpAsAdamBitForBit) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1}) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor expected = weights_after(with_exact_optimizer("Adam", stage, precision), world, 6);
        const at::Tensor warm = weights_after(onebit_adam(6, stage, precision), world, 6);
        EXPECT_TRUE(warm.equal(expected))
            << "stage " << stage << " " << precision << " " << (warm - expected).abs().max();
        EXPECT_FALSE(weights_after(onebit_adam(2, stage, precision), world, 6).equal(expected));
      }
    }
  });
}

TEST(OneBitAdam, IsTheSameAtStagesZeroAndOne) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor plain = weights_after(onebit_adam(3, 0, precision), world, 12);
        EXPECT_TRUE(weights_after(onebit_adam(3, 1, precision), world, 12).equal(plain)) << precision;
        EXPECT_TRUE(all_ranks_have(plain, world)) << "ranks have other weights";
      }
    });
  }
}

TEST(OneBitAdam, IsAdamWithFrozenMomentsOnOneRank) {
  run_ranks(1, [](comm::World& world) {
    const auto engine = zeropp_engine(onebit_adam(2, 0), world);
    train_zeropp(*engine, 2);
    const at::Tensor second = engine->optimizer()->state().of(0).state.tensors[1].second.clone();
    const at::Tensor first = engine->optimizer()->state().of(0).state.tensors[0].second.clone();
    train_zeropp(*engine, 1);
    const auto after = engine->optimizer()->state().of(0).state;
    EXPECT_TRUE(after.tensors[1].second.equal(second)) << "the second moment changed";
    EXPECT_FALSE(after.tensors[0].second.equal(first));
    EXPECT_EQ(after.step, 3);
  });
}

TEST(OneBitAdam, TrainsToTheLossOfAdam) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& patch :
         {Json::object(), Json({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}}}})}) {
      const double first = train_zeropp(*zeropp_engine(with_exact_optimizer("Adam", 0, patch), world), 1);
      const double plain = train_zeropp(*zeropp_engine(with_exact_optimizer("Adam", 0, patch), world), 80);
      const double compressed = train_zeropp(*zeropp_engine(onebit_adam(25, 0, patch), world), 80);
      EXPECT_LT(plain, 0.5 * first);
      EXPECT_NEAR(compressed, plain, 0.05 * first);
    }
  });
}

TEST(OneBitAdam, SendsATwentiethOfTheBytes) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine = zeropp_engine(onebit_adam(2, 0), counted_world(world, notes));
    const double warm = bytes_of_step(*engine, *notes);
    EXPECT_EQ(bytes_of_step(*engine, *notes), warm);
    EXPECT_GE(warm, kBytesOfAllReduce);
    // What is left beside the bits is the bias, and the ends of blocks.
    EXPECT_LT(bytes_of_step(*engine, *notes), 0.05 * kBytesOfAllReduce);
  });
}

TEST(OneBitAdam, RefusesWhatDoesNotFitItByTheKey) {
  run_ranks(2, [](comm::World& world) {
    const auto refuses = [&](const Json& config, const std::vector<std::string>& texts) {
      EXPECT_TRUE(throws_error<ConfigError>([&] { zeropp_engine(config, world); }, texts));
    };
    refuses(onebit_adam(4, 2), {"zero_optimization.stage: got 2", "OneBitAdam"});
    refuses(onebit_adam(4, 0, {{"gradient_clipping", 1.0}}), {"gradient_clipping: got 1"});
    refuses(onebit_adam(4, 1, {{"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}}}}}}),
            {"offload_optimizer.device"});
    refuses(onebit_adam(4, 0, {{"gradient_allreduce_op", "sum"}}), {"gradient_allreduce_op"});
    refuses(onebit_adam(4, 0, {{"bf16", {{"enabled", true}, {"check_grad_overflow", false}}}}),
            {"bf16.check_grad_overflow: got false", "OneBitAdam", "expected true"});
    refuses(onebit_adam(-1, 0), {"freeze_step"});
    for (const char* backend : {"mpi", "hccl", "compressed", "smoke"}) {
      refuses(onebit_adam(4, 0, {{"optimizer", {{"params", {{"comm_backend_name", backend}}}}}}),
              {"optimizer.params.comm_backend_name", backend, "the key left out"});
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
