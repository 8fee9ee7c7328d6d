// When gradients are reduced: accumulation that the caller steers, and losses over several engines.
#include <stdexcept>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::basic;
using testing::make_engine;
using testing::odd_batch;
using testing::train_step;

/// Weights after `steps` updates of two backwards each, which `accumulate` runs.
template <class Accumulate>
at::Tensor weights_after(Json config, const comm::World& world, const Accumulate& accumulate, int steps = 3) {
  const auto engine = make_engine(config, world);
  for (int step = 0; step < steps; ++step) {
    const auto loss = [&](int micro) {
      const auto [inputs, targets] = odd_batch(4 * ((2 * step + micro) * world.size() + world.rank()), 4);
      return engine->forward(inputs, targets);
    };
    accumulate(*engine, loss);
  }
  EXPECT_EQ(engine->global_steps(), steps);
  return engine->module().named_parameters()["last.weight"].detach().clone();
}

Json accumulating(int stage, Json patch = Json::object()) {
  Json config = basic({{"gradient_accumulation_steps", 2}, {"zero_optimization", {{"stage", stage}}}});
  config.merge_patch(patch);
  return config;
}

/// Sums that are rounded in another order: SGD does not magnify what that changes.
Json with_sgd(int stage) {
  return accumulating(stage, {{"gradient_accumulation_steps", 1},
                              {"zero_allow_untested_optimizer", true},
                              {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}}});
}

const auto two_steps = [](auto& engine, const auto& loss) {
  for (int micro = 0; micro < 2; ++micro) {
    engine.backward(loss(micro));
    engine.step();
  }
};

TEST(Reduction, EqualsAccumulationIfItFollowsNoSync) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1}) {
      const at::Tensor expected = weights_after(accumulating(stage), world, two_steps);
      const at::Tensor synced = weights_after(accumulating(stage), world, [](auto& engine, const auto& loss) {
        {
          const auto scope = engine.no_sync();
          engine.backward(loss(0));
          EXPECT_ERROR(UsageError, engine.step(),
                       "It is illegal to call Engine.step() inside no_sync context manager");
          EXPECT_ERROR(UsageError, static_cast<void>(engine.no_sync()),
                       "no_sync context manager reentry is unsupported");
        }
        engine.set_gradient_accumulation_boundary(true);
        engine.backward(loss(1));
        engine.step();
      });
      EXPECT_TRUE(synced.equal(expected)) << "stage " << stage;
      // Nothing but no_sync: step() reduces.
      const at::Tensor late = weights_after(accumulating(stage), world, [](auto& engine, const auto& loss) {
        for (int micro = 0; micro < 2; ++micro) {
          const auto scope = engine.no_sync();
          loss(micro).backward();
        }
        engine.set_gradient_accumulation_boundary(true);
        engine.step();
      });
      EXPECT_TRUE(late.equal(expected)) << "stage " << stage;
      const at::Tensor asked = weights_after(accumulating(stage), world, [](auto& engine, const auto& loss) {
        engine.set_gradient_accumulation_boundary(true);
        for (int micro = 0; micro < 2; ++micro) engine.backward(loss(micro), {.allreduce_gradients = false});
        engine.allreduce_gradients();
        engine.step();
      });
      EXPECT_TRUE(asked.equal(expected)) << "stage " << stage;
    }
    const auto two = make_engine(accumulating(2), world);
    EXPECT_ERROR(UsageError, static_cast<void>(two->no_sync()),
                 "no_sync context manager is incompatible with ZeRO stage 2",
                 "use stage 0 or 1, or coalesce_grad_reduction()");
  });
}

/// Two equal backwards in a scope, after each of which the gradient is read.
template <class Scope>
void check_own_sums(const Json& config, const comm::World& world, const Scope& begin) {
  const auto engine = make_engine(config, world);
  const at::Tensor weight = engine->module().named_parameters()["last.weight"];
  const auto scope = begin(*engine);
  const auto backward = [&] {
    const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
    engine->backward(engine->forward(inputs, targets));
    return safe_get_full_grad(*engine, weight);
  };
  const at::Tensor once = backward();
  EXPECT_GT(once.abs().sum().item<double>(), 0);
  EXPECT_TRUE(backward().equal(2 * once));
}

TEST(Reduction, ShowsARanksOwnSumInsideScopes) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1})
      check_own_sums(with_sgd(stage), world, [](auto& engine) { return engine.no_sync(); });
    for (const int stage : {0, 1, 2})
      check_own_sums(with_sgd(stage), world, [](auto& engine) { return engine.coalesce_grad_reduction(); });
  });
}

TEST(Reduction, CoalescedBackwardsEqualOneBackwardOfTheirSum) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const Json config = with_sgd(stage);
      const at::Tensor expected = weights_after(config, world, [](auto& engine, const auto& loss) {
        engine.backward(loss(0) + loss(1));
        engine.step();
      });
      const at::Tensor coalesced = weights_after(config, world, [](auto& engine, const auto& loss) {
        {
          const auto scope = engine.coalesce_grad_reduction();
          for (int micro = 0; micro < 2; ++micro) engine.backward(loss(micro));
          EXPECT_ERROR(UsageError, engine.step(),
                       "step() inside coalesce_grad_reduction(): end its scope first");
        }
        engine.step();
      });
      EXPECT_TRUE(coalesced.allclose(expected, 1e-5, 1e-7)) << "stage " << stage;
    }
  });
}

TEST(Reduction, ForgetsGradientsOfACoalescedScopeThatThrows) {
  const auto engine = make_engine(basic());
  const auto [inputs, targets] = odd_batch(0, 4);
  try {
    const auto scope = engine->coalesce_grad_reduction();
    engine->backward(engine->forward(inputs, targets));
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(engine->module().named_parameters()["last.weight"].grad().defined());
  train_step(*engine);
}

TEST(Reduction, UnmanagedEveryStepUpdates) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const Json config = accumulating(stage, {{"managed_gradient_accumulation", false}});
      const at::Tensor expected = weights_after(accumulating(stage), world, two_steps);
      const at::Tensor unmanaged = weights_after(config, world, [](auto& engine, const auto& loss) {
        for (int micro = 0; micro < 2; ++micro) engine.backward(loss(micro));
        EXPECT_FALSE(engine.is_gradient_accumulation_boundary());
        engine.step();
        EXPECT_TRUE(engine.was_step_applied());
      });
      EXPECT_TRUE(unmanaged.equal(expected)) << "stage " << stage;
      const auto engine = make_engine(config, world);
      EXPECT_ERROR(UsageError, engine->set_gradient_accumulation_boundary(true),
                   "set_gradient_accumulation_boundary() needs managed_gradient_accumulation");
      for (int i = 0; i < 3; ++i) {
        const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
        engine->backward(engine->forward(inputs, targets));
      }
      engine->step();
      EXPECT_EQ(engine->global_samples(), 3 * 4 * world.size());
    }
  });
}

TEST(Reduction, UnmanagedCountsDirectBackwardsToo) {
  const auto engine = make_engine(accumulating(1, {{"managed_gradient_accumulation", false}}));
  const auto loss = [&] {
    const auto [inputs, targets] = odd_batch(0, 4);
    return engine->forward(inputs, targets);
  };
  loss().backward();
  engine->backward(loss());
  loss().backward();
  engine->step();
  EXPECT_EQ(engine->global_samples(), 3 * 4);
}

TEST(Reduction, AddsTheAverageOfASecondBackwardAtTheBoundary) {
  testing::run_ranks(3, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const Json config = with_sgd(stage);
      const at::Tensor expected = weights_after(config, world, [](auto& engine, const auto& loss) {
        engine.backward(loss(0) + loss(1));
        engine.step();
      });
      const at::Tensor twice = weights_after(config, world, [](auto& engine, const auto& loss) {
        for (int micro = 0; micro < 2; ++micro) engine.backward(loss(micro));
        engine.step();
      });
      EXPECT_TRUE(twice.allclose(expected, 1e-5, 1e-6)) << "stage " << stage << "\n" << twice - expected;
    }
  });
}

TEST(Reduction, EnginesTrainJointlyOnOneLoss) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const Json config =
          accumulating(stage, {{"gradient_accumulation_steps", 1}, {"gradient_clipping", 0.0}});
      const auto alone = make_engine(config, world), first = make_engine(config, world),
                 second = make_engine(config, world);
      for (int step = 0; step < 3; ++step) {
        const auto [inputs, targets] = odd_batch(4 * (2 * step + world.rank()), 4);
        alone->backward(alone->forward(inputs, targets));
        alone->step();
        (first->forward(inputs, targets) + second->forward(inputs, targets)).backward();
        first->finish_backward();
        second->_backward_epilogue();
        first->step();
        second->step();
      }
      const auto weight = [](auto& engine) { return engine->module().named_parameters()["last.weight"]; };
      EXPECT_TRUE(weight(first).equal(weight(alone))) << "stage " << stage;
      EXPECT_TRUE(weight(second).equal(weight(alone))) << "stage " << stage;
    }
  });
}

TEST(Reduction, GivesTheSameForAScaledLossAsTheEnginesBackward) {
  const Json config =
      basic({{"fp16", {{"enabled", true}, {"loss_scale", 64}}}, {"gradient_accumulation_steps", 2}});
  std::vector<at::Tensor> results;
  for (const bool own : {false, true}) {
    const auto engine = make_engine(config);
    for (int micro = 0; micro < 4; ++micro) {
      const auto [inputs, targets] = odd_batch(4 * micro, 4);
      const at::Tensor loss = engine->forward(inputs.to(at::kHalf), targets);
      if (own) {
        engine->scale(loss).backward();
      } else {
        engine->backward(loss);
      }
      engine->step();
    }
    results.push_back(engine->module().named_parameters()["last.weight"].detach().to(at::kFloat));
  }
  EXPECT_TRUE(results[0].allclose(results[1], 1e-3, 1e-4)) << results[0] - results[1];
}

}  // namespace
}  // namespace deepspeed
