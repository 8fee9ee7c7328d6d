// A backward that fails in its middle leaves a part of its gradients, which no step may use.
#include <stdexcept>
#include <string>

#include <ATen/ops/equal.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/zero_optimizer.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

Json window_config(int stage, int accumulation = 1) {
  return basic(
      {{"gradient_accumulation_steps", accumulation},
       {"zero_optimization",
        {{"stage", stage}, {"reduce_bucket_size", 150}, {"stage3_param_persistence_threshold", 0}}}});
}

template <class Engine>
at::Tensor loss_at(Engine& engine, int64_t first) {
  const auto [inputs, targets] = odd_batch(first, 4);
  return engine.forward(inputs, targets);
}

/// A backward whose last gradients do not come, after those of the other parameters.
template <class Engine>
void fail_backward(Engine& engine, bool is_direct = false) {
  const at::Tensor weight = engine.module().named_parameters()["first.weight"];
  const unsigned hook =
      weight.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no memory"); });
  const at::Tensor loss = loss_at(engine, 1000);
  EXPECT_THROW(is_direct ? loss.backward() : static_cast<void>(engine.backward(loss)), std::runtime_error);
  weight.remove_hook(hook);
}

template <class Engine>
void expect_same_weights(Engine& one, Engine& other) {
  const zero::GatheredParameters whole(one.module().parameters()), of_other(other.module().parameters());
  for (const auto& item : one.module().named_parameters())
    EXPECT_TRUE(other.module().named_parameters()[item.key()].equal(item.value())) << item.key();
}

constexpr const char* kAsksForZeroGrad = "a backward() that failed";

TEST(FailedBackward, ReachesNoStepAndZeroGradDropsIt) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool is_direct : {false, true}) {
        SCOPED_TRACE(message("stage ", stage, is_direct ? ", loss.backward()" : ""));
        const auto expected = make_engine(window_config(stage), world);
        const auto engine = make_engine(window_config(stage), world);
        fail_backward(*engine, is_direct);
        EXPECT_ERROR(UsageError, engine->step(), "step() after ", kAsksForZeroGrad, "call zero_grad()");
        EXPECT_ERROR(UsageError, engine->step(), "step() after ", kAsksForZeroGrad);
        EXPECT_EQ(engine->global_steps(), 0);
        engine->zero_grad();
        for (int step = 0; step < 2; ++step)
          EXPECT_EQ(train_step(*engine, 4 * step), train_step(*expected, 4 * step));
        expect_same_weights(*expected, *engine);
      }
    }
  });
}

TEST(FailedBackward, IsForgottenByTheNextOneIfTheWindowIsEmpty) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool is_direct : {false, true}) {
      SCOPED_TRACE(message("stage ", stage, is_direct ? ", loss.backward()" : ""));
      const auto expected = make_engine(window_config(stage)), engine = make_engine(window_config(stage));
      train_step(*expected);
      train_step(*engine);
      fail_backward(*engine, is_direct);
      EXPECT_EQ(train_step(*engine, 4), train_step(*expected, 4));
      expect_same_weights(*expected, *engine);
    }
  }
}

TEST(FailedBackward, AsksForTheWholeWindowAgainIfALaterMicroBatchFails) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool is_direct : {false, true}) {
      SCOPED_TRACE(message("stage ", stage, is_direct ? ", loss.backward()" : ""));
      const auto expected = make_engine(window_config(stage, 2)),
                 engine = make_engine(window_config(stage, 2));
      train_step(*engine, 8);
      fail_backward(*engine, is_direct);
      EXPECT_ERROR(UsageError, engine->step(), "step() after ", kAsksForZeroGrad);
      EXPECT_ERROR(UsageError, engine->backward(loss_at(*engine, 0)), "backward() after ", kAsksForZeroGrad);
      engine->optimizer()->zero_grad();
      engine->set_gradient_accumulation_boundary(false);
      for (const auto& each : {expected, engine}) {
        train_step(*each, 0);
        each->set_gradient_accumulation_boundary(true);
        train_step(*each, 4);
      }
      EXPECT_EQ(engine->global_steps(), 1);
      expect_same_weights(*expected, *engine);
    }
  }
}

// The ranks end with an error, or the one that failed has made up for it: never with a part of its gradients.
TEST(FailedBackward, LeavesNoRankWaitingIfOnlyOneRankFails) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(message("stage ", stage));
    const auto run = [&](bool fails) {
      return fork_ranks(
          2,
          [&](int) {
            comm::destroy_process_group();  // the world of one that other tests of this process made
            comm::World world = comm::init_distributed();
            const auto engine = make_engine(window_config(stage), world);
            train_step(*engine);
            if (fails && world.rank() == 1) {
              fail_backward(*engine);
              EXPECT_ERROR(UsageError, engine->step(), "step() after ", kAsksForZeroGrad);
            }
            double loss = 0;
            const std::string error = error_of<CommError>([&] {
              if (fails && world.rank() == 1) engine->zero_grad();
              for (int step = 1; step < 4; ++step) loss = train_step(*engine, 4 * step + world.rank());
            });
            return error == "no error" ? std::to_string(loss) : std::string("an error");
          },
          {.end_together = true});
    };
    const auto expected = run(false), outcomes = run(true);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(outcomes[rank].ok());
      EXPECT_EQ(outcomes[0].value == "an error", outcomes[1].value == "an error");
      if (outcomes[rank].value == "an error") continue;
      EXPECT_EQ(outcomes[rank].value, expected[rank].value);
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
