// 1-bit Lamb: its warm-up is Lamb, its exchange is small, and its training ends where Lamb's does.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(OneBitLamb, WarmsUpAsLambBitForBit) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1}) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor expected = weights_after(with_exact_optimizer("Lamb", stage, precision), world, 6);
        const at::Tensor warm = weights_after(onebit_lamb(6, stage, precision), world, 6);
        EXPECT_TRUE(warm.equal(expected))
            << "stage " << stage << " " << precision << " " << (warm - expected).abs().max();
        EXPECT_FALSE(weights_after(onebit_lamb(2, stage, precision), world, 6).equal(expected));
      }
    }
  });
}

// The norms of parameters that partitions cut are sums in another order, in double.
TEST(OneBitLamb, IsTheSameAtStagesZeroAndOne) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const Json& precision : exchange_precisions()) {
        const at::Tensor plain = weights_after(onebit_lamb(3, 0, precision), world, 12);
        const at::Tensor cut = weights_after(onebit_lamb(3, 1, precision), world, 12);
        EXPECT_TRUE(cut.equal(plain)) << precision << " " << (cut - plain).abs().max();
        EXPECT_TRUE(all_ranks_have(plain, world)) << "ranks have other weights";
      }
    });
  }
}

TEST(OneBitLamb, KeepsTheNumbersOfAllParametersOnEveryRank) {
  run_ranks(3, [](comm::World& world) {
    std::vector<at::Tensor> of_stages;
    for (const int stage : {0, 1}) {
      const auto engine = zeropp_engine(onebit_lamb(3, stage), world);
      train_zeropp(*engine, 8);
      const auto numbers = engine->optimizer()->state().of(0).state.numbers;
      std::vector<std::string> names;
      std::vector<double> values;
      for (const auto& [name, of_params] : numbers) {
        names.push_back(name);
        EXPECT_EQ(of_params.size(), 3U) << name;
        values.insert(values.end(), of_params.begin(), of_params.end());
      }
      EXPECT_EQ(names, (std::vector<std::string>{"lamb_coeff_freeze", "last_factor", "scaling_coeff"}));
      of_stages.push_back(at::tensor(values, at::kDouble));
      EXPECT_TRUE(all_ranks_have(of_stages.back(), world)) << "stage " << stage;
      EXPECT_GT(of_stages.back().min().item<double>(), 0.0);
    }
    EXPECT_TRUE(at::allclose(of_stages[0], of_stages[1], 1e-12, 0.0));
  });
}

TEST(OneBitLamb, TrainsToTheLossOfLamb) {
  run_ranks(2, [](comm::World& world) {
    for (Json patch : {Json::object(), Json({{"fp16", {{"enabled", true}, {"initial_scale_power", 24}}}})}) {
      patch["optimizer"]["params"]["lr"] = 0.02;
      const Json exact = with_exact_optimizer("Lamb", 0, patch);
      const double first = train_zeropp(*zeropp_engine(exact, world), 1);
      const double plain = train_zeropp(*zeropp_engine(exact, world), 120);
      const double compressed = train_zeropp(*zeropp_engine(onebit_lamb(40, 0, patch), world), 120);
      EXPECT_LT(plain, 0.7 * first);
      EXPECT_NEAR(compressed, plain, 0.1 * first);
    }
  });
}

TEST(OneBitLamb, SendsATwentiethOfTheBytes) {
  run_ranks(2, [](comm::World& world) {
    const auto notes = std::make_shared<CallNotes>();
    const auto engine = zeropp_engine(onebit_lamb(2, 0), counted_world(world, notes));
    EXPECT_GE(bytes_of_step(*engine, *notes), kBytesOfAllReduce);
    EXPECT_GE(bytes_of_step(*engine, *notes), kBytesOfAllReduce);
    EXPECT_LT(bytes_of_step(*engine, *notes), 0.05 * kBytesOfAllReduce);
  });
}

TEST(OneBitLamb, RefusesWhatDoesNotFitItByTheKey) {
  run_ranks(2, [](comm::World& world) {
    const auto refuses = [&](const Json& config, const std::vector<std::string>& texts) {
      EXPECT_TRUE(throws_error<ConfigError>([&] { zeropp_engine(config, world); }, texts));
    };
    const auto with_params = [](const Json& params) {
      return onebit_lamb(4, 0, {{"optimizer", {{"params", params}}}});
    };
    refuses(onebit_lamb(4, 2), {"zero_optimization.stage: got 2", "OneBitLamb", "expected 0 or 1"});
    refuses(onebit_lamb(4, 0, {{"gradient_clipping", 1.0}}), {"gradient_clipping: got 1", "expected 0"});
    refuses(onebit_lamb(4, 0, {{"fp16", {{"enabled", true}, {"loss_scale", 128}}}}),
            {"fp16.loss_scale: got 128", "expected 0", "OneBitLamb"});
    refuses(onebit_lamb(0, 0), {"optimizer.params.freeze_step"});
    refuses(with_params({{"min_coeff", 11}}), {"optimizer.params.min_coeff", "max_coeff"});
    refuses(with_params({{"factor_min", 5}}), {"optimizer.params.factor_min", "factor_max"});
    refuses(with_params({{"amsgrad", true}}), {"optimizer.params.amsgrad"});
    refuses(with_params({{"comm_backend_name", "mpi"}}), {"optimizer.params.comm_backend_name"});
  });
}

}  // namespace
}  // namespace deepspeed::testing
