// zero_grad() after a direct loss.backward() that was never finished, and after backwards that were.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

Json small_buckets(int stage, bool overlap, int accumulation) {
  return basic(
      {{"gradient_clipping", 0.0},
       {"gradient_accumulation_steps", accumulation},
       {"zero_optimization", {{"stage", stage}, {"overlap_comm", overlap}, {"reduce_bucket_size", 150}}}});
}

template <class Engine>
at::Tensor loss_of(Engine& engine, int64_t first) {
  const auto [inputs, targets] = odd_batch(first, 4);
  return engine.forward(inputs, targets);
}

TEST(StaleGradients, AreForgottenIfABackwardWasNotFinished) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      for (const int variant : {0, 1, 2, 3}) {
        SCOPED_TRACE(message("stage ", stage, " variant ", variant));
        const Json config = small_buckets(stage, variant % 2 == 1, variant / 2 + 1);
        const auto expected = make_engine(config, world), engine = make_engine(config, world);
        loss_of(*engine, 1000 + world.rank()).backward();
        engine->zero_grad();
        EXPECT_FALSE(engine->optimizer()->gradients().is_open());
        for (const auto& each : {expected, engine}) {
          each->set_gradient_accumulation_boundary(true);
          each->backward(loss_of(*each, 4 * world.rank()));
          each->step();
        }
        for (const auto& item : expected->module().named_parameters()) {
          EXPECT_TRUE(engine->module().named_parameters()[item.key()].equal(item.value())) << item.key();
        }
      }
    }
  });
}

// One rank has launched buckets that another has not: both must make the same collectives.
TEST(StaleGradients, RanksThatReachedDifferentParametersStayTogether) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const auto engine = make_engine(small_buckets(stage, /*overlap=*/true, 1), world);
      const auto params = engine->module().named_parameters();
      const at::Tensor extra = world.rank() == 1 ? params["unused"].sum() : params["gain"].sum();
      (loss_of(*engine, 0) + extra).backward();
      engine->zero_grad();
      train_step(*engine);
      EXPECT_TRUE(engine->was_step_applied()) << "stage " << stage;
    }
  });
}

TEST(StaleGradients, UnusedParametersAreNoErrorOfZeroGrad) {
  Json config = small_buckets(2, false, 1);
  config["zero_optimization"]["ignore_unused_parameters"] = false;
  const auto engine = make_engine(config);
  loss_of(*engine, 0).backward();
  EXPECT_NO_THROW(engine->zero_grad());
  EXPECT_ERROR(UsageError, engine->backward(loss_of(*engine, 0)),
               "parameter 'unused' received no gradient on rank 0",
               "zero_optimization.ignore_unused_parameters");
}

// A program that drops a batch steps as with a loss of which no parameter has a part.
TEST(DroppedGradients, AreZerosInTheStep) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int accumulation : {1, 2}) {
        SCOPED_TRACE(message("stage ", stage, " accumulation ", accumulation));
        const Json config = small_buckets(stage, /*overlap=*/accumulation == 2, accumulation);
        const auto expected = make_engine(config, world), engine = make_engine(config, world);
        const auto window = [&](auto& trained, double factor, bool drops) {
          for (int micro = 0; micro < accumulation; ++micro) {
            trained.backward(loss_of(trained, 4 * world.rank()) * factor);
            if (drops && micro + 1 == accumulation) trained.zero_grad();
            trained.step();
          }
        };
        window(*expected, 1.0, false);
        window(*engine, 1.0, false);
        window(*expected, 0.0, false);
        window(*engine, 1.0, /*drops=*/true);
        EXPECT_TRUE(engine->was_step_applied());
        window(*expected, 1.0, false);
        window(*engine, 1.0, false);
        EXPECT_EQ(engine->global_steps(), 3);
        for (const auto& item : expected->module().named_parameters()) {
          if (!item.value().requires_grad()) continue;
          const at::Tensor& param = engine->module().named_parameters()[item.key()];
          EXPECT_TRUE(safe_get_full_fp32_param(*engine, param)
                          .equal(safe_get_full_fp32_param(*expected, item.value())))
              << item.key();
        }
      }
    }
  });
}

TEST(DroppedGradients, LeaveThoseOfTheNextBackward) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    const Json config = small_buckets(stage, false, 2);
    const auto expected = make_engine(config), engine = make_engine(config);
    expected->backward(loss_of(*expected, 0) * 0.0);
    engine->backward(loss_of(*engine, 0));
    engine->zero_grad();
    for (const auto& each : {expected, engine}) {
      each->step();
      each->backward(loss_of(*each, 4));
      each->step();
    }
    EXPECT_EQ(loss_of(*engine, 8).item<double>(), loss_of(*expected, 8).item<double>());
  }
}

TEST(DroppedGradients, AreLoggedOnceAndForgottenByALoad) {
  const auto engine = make_engine(basic({{"log_level", "warning"}}));
  for (int step = 0; step < 2; ++step) {
    engine->backward(loss_of(*engine, 0));
    engine->zero_grad();
    ::testing::internal::CaptureStderr();
    engine->step();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.find("zero_grad() has dropped the gradients") != std::string::npos, step == 0) << text;
    EXPECT_ERROR(UsageError, engine->step(), "without any backward()");
  }
  const TemporaryFolder folder;
  engine->save_checkpoint(folder.string());
  engine->backward(loss_of(*engine, 0));
  engine->zero_grad();
  engine->load_checkpoint(folder.string());
  EXPECT_ERROR(UsageError, engine->step(), "without any backward()");
}

// As in a GAN: the loss of one engine passes through the model of another, whose program drops what it left.
TEST(DroppedGradients, ReachNoSumFromAnotherEnginesBackward) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      const auto make = [&] { return make_engine(small_buckets(stage, /*overlap=*/true, 1), world); };
      const auto judge = make(), maker = make(), expected = make();
      const auto shared_loss = [&] { return loss_of(*maker, 8) + 100 * loss_of(*judge, 4); };
      const auto step_alone = [&](auto& engine) {
        engine.backward(loss_of(engine, 4 * world.rank()));
        engine.step();
      };
      for (int step = 0; step < 2; ++step) {
        maker->backward(shared_loss());
        for (const at::Tensor& param : judge->module().parameters()) param.mutable_grad().reset();
        step_alone(*judge);
        step_alone(*expected);
      }
      const auto found = loss_of(*judge, 0).item<double>();
      EXPECT_EQ(found, loss_of(*expected, 0).item<double>());

      maker->backward(shared_loss());  // nothing drops what it leaves now
      step_alone(*judge);
      step_alone(*expected);
      EXPECT_NE(loss_of(*judge, 0).item<double>(), loss_of(*expected, 0).item<double>());
    }
  });
}

TEST(DroppedGradients, AreForgottenByZeroGradAndALoadIfAnotherEngineMadeThem) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool loads : {false, true}) {
      SCOPED_TRACE(message("stage ", stage, " load ", loads));
      const TemporaryFolder folder;
      const Json config = small_buckets(stage, false, 1);
      const auto judge = make_engine(config), maker = make_engine(config), expected = make_engine(config);
      judge->save_checkpoint(folder.string());
      maker->backward(loss_of(*maker, 8) + 100 * loss_of(*judge, 4));
      EXPECT_TRUE(judge->module().named_parameters()["last.bias"].grad().defined());
      if (loads) {
        judge->load_checkpoint(folder.string());
      } else {
        judge->zero_grad();
      }
      for (const auto& each : {judge, expected}) train_step(*each);
      EXPECT_EQ(loss_of(*judge, 0).item<double>(), loss_of(*expected, 0).item<double>());
    }
  }
}

TEST(DroppedGradients, AreLoggedOnceIfTheEngineCannotSeeThem) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool is_direct : {false, true}) {
      SCOPED_TRACE(message("stage ", stage, " direct ", is_direct));
      Json config = small_buckets(stage, false, 2);
      config["log_level"] = "warning";
      const auto engine = make_engine(config);
      const auto backward = [&] {
        if (is_direct) return loss_of(*engine, 0).backward();
        engine->backward(loss_of(*engine, 0));
      };
      const auto said_in_window = [&](int num_backwards) {
        backward();
        engine->step();
        for (int more = 1; more < num_backwards; ++more) backward();
        ::testing::internal::CaptureStderr();
        engine->step();
        return ::testing::internal::GetCapturedStderr();
      };
      const std::string text = "step() uses the gradients of 3 backwards";
      EXPECT_EQ(said_in_window(2).find("backwards"), std::string::npos);
      EXPECT_EQ(said_in_window(3).find(text) != std::string::npos, stage > 0);
      EXPECT_EQ(said_in_window(3).find(text), std::string::npos);
    }
  }
}

TEST(ReplacedGradients, AreUsedByTheStepAtStage0) {
  run_ranks(2, [](comm::World& world) {
    for (const int accumulation : {1, 2}) {
      Json config = small_buckets(0, false, accumulation);
      config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 1.0}}}};
      const auto engine = make_engine(config, world);
      engine->backward(loss_of(*engine, 4 * world.rank()));
      for (int step = 1; step < accumulation; ++step) {
        engine->step();
        engine->backward(loss_of(*engine, 4 * world.rank()));
      }
      const at::Tensor weight = engine->module().named_parameters()["first.weight"];
      const at::Tensor before = weight.detach().clone();
      weight.mutable_grad() = at::full_like(before, 0.25);
      engine->step();
      EXPECT_TRUE(at::allclose(weight, before - 0.25)) << accumulation;
    }
  });
}

// A program may forget the reduced gradients of stage 0, and give some parameters others, before the next
// backward.
TEST(ReplacedGradients, AreWhereTheNextBackwardBeginsAtStage0) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = make_engine(small_buckets(0, false, 1), world);
    const auto params = engine->module().named_parameters();
    const auto backward = [&] { engine->backward(loss_of(*engine, 4 * world.rank())); };
    backward();
    std::map<std::string, at::Tensor> once, held;
    for (const auto& param : params) {
      if (!param.value().requires_grad()) continue;
      held[param.key()] = param.value().grad();
      once[param.key()] = held[param.key()].clone();
      param.value().mutable_grad().reset();
    }
    params["gain"].mutable_grad() = at::full_like(params["gain"], 0.5);
    params["unused"].mutable_grad() = at::full_like(params["unused"], 0.25);
    backward();
    for (const auto& [name, gradient] : once) {
      const double added = name == "gain" ? 0.5 : name == "unused" ? 0.25 : 0.0;
      EXPECT_TRUE(at::allclose(params[name].grad(), gradient + added)) << name;
      EXPECT_TRUE(held[name].equal(gradient)) << name << " in the hands of the program";
    }
  });
}

TEST(ReplacedGradients, AllowStepsWithoutABackwardAtStage0) {
  run_ranks(2, [](comm::World& world) {
    Json config = small_buckets(0, false, 1);
    config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 1.0}}}};
    const auto engine = make_engine(config, world);
    const auto params = engine->module().named_parameters();
    const at::Tensor weight = params["first.weight"], gain = params["gain"];
    for (const double value : {0.25, -1.0}) {
      const at::Tensor before = weight.detach().clone(), kept = gain.detach().clone();
      weight.mutable_grad() = at::full_like(before, value);
      engine->step();
      EXPECT_TRUE(at::allclose(weight, before - value));
      EXPECT_TRUE(gain.equal(kept)) << "a parameter without a gradient";
      EXPECT_FALSE(weight.grad().defined());
    }
    EXPECT_ERROR(UsageError, engine->step(), "without any backward()");
    const auto other = make_engine(small_buckets(1, false, 1), world);
    other->module().named_parameters()["gain"].mutable_grad() = at::ones_like(gain);
    EXPECT_ERROR(UsageError, other->step(), "without any backward()");
  });
}

// A loss that goes through the models of two engines, as a GAN's, leaves gradients with the one that did not
// run its backward: dropped there they count for nothing, kept they are a part of the next step.
TEST(UnannouncedGradients, CountAsTheProgramLeavesThemAtStage0) {
  run_ranks(2, [](comm::World& world) {
    for (const int variant : {0, 1, 2, 3}) {
      SCOPED_TRACE(message("variant ", variant));
      Json config = small_buckets(0, variant % 2 == 1, variant / 2 + 1);
      config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.125}}}};
      const auto expected = make_engine(config, world), engine = make_engine(config, world);
      engine->optimizer()->gradients().leave_unannounced();
      const auto params = engine->module().named_parameters();
      const auto drop = [&] {
        for (const auto& param : params) param.value().mutable_grad().reset();
      };
      for (const auto& each : {expected, engine}) each->set_gradient_accumulation_boundary(true);
      loss_of(*engine, 1000 + world.rank()).backward();
      EXPECT_TRUE(params["first.weight"].grad().defined());
      drop();
      for (const bool keeps : {false, true}) {
        for (const auto& each : {expected, engine}) each->backward(loss_of(*each, 4 * world.rank()));
        loss_of(*engine, 1000 + world.rank()).backward();
        if (keeps) {
          expected->backward(loss_of(*expected, 1000 + world.rank()));
        } else {
          drop();
          expected->zero_grad();
          for (const auto& each : {expected, engine}) each->backward(loss_of(*each, 8 + world.rank()));
        }
        for (const auto& each : {expected, engine}) each->step();
        for (const auto& item : expected->module().named_parameters())
          EXPECT_TRUE(at::allclose(params[item.key()], item.value(), 1e-6, 1e-7)) << item.key();
      }
      loss_of(*engine, 1000 + world.rank()).backward();
      engine->zero_grad();
      EXPECT_FALSE(engine->optimizer()->gradients().is_open());
      EXPECT_FALSE(params["first.weight"].grad().defined());
    }
  });
}

TEST(ReplacedGradients, CountAsZerosIfThereAreNoneAtStage0) {
  Json config = small_buckets(0, false, 1);
  config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 1.0}}}};
  const auto engine = make_engine(config);
  engine->backward(loss_of(*engine, 0));
  const auto params = engine->module().named_parameters();
  const at::Tensor kept = params["first.weight"].detach().clone(), moved = params["gain"].detach().clone();
  params["first.weight"].mutable_grad().reset();
  engine->step();
  EXPECT_TRUE(params["first.weight"].equal(kept));
  EXPECT_FALSE(params["gain"].equal(moved));
}

}  // namespace
}  // namespace deepspeed::testing
