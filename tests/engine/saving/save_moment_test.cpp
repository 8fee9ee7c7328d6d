// When a save is refused, since it would lose gradients, and when not: a resumed run goes on exactly.
#include <csignal>

#include <ATen/ops/equal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/gathered_parameters.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::basic;
using testing::error_of;
using ::testing::HasSubstr;
using testing::make_engine;
using ::testing::Not;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_step;

Json window_of(int64_t micro_steps, int stage, Json patch = Json::object()) {
  Json config = basic({{"gradient_accumulation_steps", micro_steps},
                       {"log_level", "off"},
                       {"zero_optimization", {{"stage", stage}}}});
  config.merge_patch(patch);
  return config;
}

template <class Engine>
at::Tensor micro_loss(Engine& engine, int64_t first = 0) {
  const auto [inputs, targets] = testing::odd_batch(first, 4);
  return engine.forward(inputs, targets);
}

template <class Engine>
std::string error_of_save(Engine& engine, const TemporaryFolder& folder) {
  const std::string error = error_of<UsageError>([&] { engine.save_checkpoint(folder / "run"); });
  EXPECT_FALSE(fs::exists(folder / "run")) << "something was written";
  return error;
}

template <class Engine>
void expect_equal_weights(Engine& one, Engine& other) {
  const auto ours = one.module().parameters(), expected = other.module().parameters();
  const zero::GatheredParameters all(ours), all_expected(expected);
  for (size_t index = 0; index < ours.size(); ++index)
    EXPECT_TRUE(at::equal(ours[index], expected[index])) << index;
}

TEST(SaveMoment, IsRefusedInAnAccumulationWindowBeforeAnythingIsWritten) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool decoupled : {false, true}) {
      const TemporaryFolder folder;
      run_ranks(2, [&](comm::World& world) {
        const auto engine = make_engine(
            window_of(3, stage, {{"checkpoint", {{"writer", {{"decoupled", decoupled}}}}}}), world);
        for (int micro_step = 0; micro_step < 3; ++micro_step) {
          engine->backward(micro_loss(*engine, micro_step));
          EXPECT_THAT(error_of_save(*engine, folder),
                      AllOf(HasSubstr("holds none"), HasSubstr("every 3 micro steps"),
                            HasSubstr("call step() first"), HasSubstr("zero_grad()")));
          engine->step();
          if (micro_step == 2) break;
          EXPECT_NE(error_of_save(*engine, folder), "no error") << micro_step;
        }
        EXPECT_NO_THROW(engine->save_checkpoint(folder / "run"));
        engine->wait_for_checkpoint();
        EXPECT_TRUE(fs::exists(folder / "run/global_step1"));
      });
    }
  }
}

TEST(SaveMoment, IsRefusedBeforeStepAfterADirectOrUnmanagedBackward) {
  const TemporaryFolder folder;
  for (const int stage : {0, 2, 3}) {
    run_ranks(2, [&](comm::World& world) {
      const auto direct = make_engine(window_of(1, stage), world);
      micro_loss(*direct).backward();
      EXPECT_THAT(error_of_save(*direct, folder),
                  AllOf(HasSubstr("call step() first"), Not(HasSubstr("boundary"))));
      direct->zero_grad();

      const auto unmanaged =
          make_engine(window_of(4, stage, {{"managed_gradient_accumulation", false}}), world);
      unmanaged->backward(micro_loss(*unmanaged));
      EXPECT_THAT(error_of_save(*unmanaged, folder),
                  AllOf(HasSubstr("call step() first"), Not(HasSubstr("boundary"))));
      unmanaged->step();
      EXPECT_NO_THROW(unmanaged->save_checkpoint(folder / message("unmanaged", stage)));
    });
  }
}

TEST(SaveMoment, NamesTheScopeThatItIsInside) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(window_of(2, 1), world);
    {
      const auto scope = engine->no_sync();
      engine->backward(micro_loss(*engine));
      EXPECT_THAT(error_of_save(*engine, folder),
                  AllOf(HasSubstr("inside of no_sync()"), HasSubstr("end the scope")));
    }
    EXPECT_NE(error_of_save(*engine, folder), "no error");
    engine->zero_grad();
    {
      const auto scope = engine->coalesce_grad_reduction();
      micro_loss(*engine).backward();  // nothing but the parameters knows of it
      EXPECT_THAT(error_of_save(*engine, folder), HasSubstr("inside of coalesce_grad_reduction()"));
    }
    engine->zero_grad();
    EXPECT_NO_THROW(engine->save_checkpoint(folder / "run"));
  });
}

TEST(SaveMoment, IsTheSameOnAllRanks) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(window_of(2, 0), world);
    if (world.rank() == 1) {
      const auto alone = engine->no_sync();
      engine->backward(micro_loss(*engine));
    }
    const std::string error = error_of<Error>([&] { engine->save_checkpoint(folder / "run"); });
    EXPECT_THAT(error, HasSubstr("call step() first"));
    EXPECT_EQ(error.find("rank 1") != std::string::npos, world.rank() == 0) << error;
    EXPECT_FALSE(fs::exists(folder / "run"));
  });
}

TEST(SaveMoment, IsAnyTimeBetweenWindows) {
  for (const int stage : {0, 1, 2, 3}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_engine(window_of(1, stage), world);
      const auto save = [&](const char* tag) { engine->save_checkpoint(folder.path(), {.tag = tag}); };
      EXPECT_NO_THROW(save("before_the_first_step"));
      train_step(*engine);
      EXPECT_NO_THROW(save("after_a_step"));
      engine->eval();
      micro_loss(*engine);
      engine->train();
      EXPECT_NO_THROW(save("after_evaluation"));
      engine->backward(micro_loss(*engine));
      engine->load_checkpoint(folder.path(), {.tag = "after_a_step"});
      EXPECT_NO_THROW(save("after_a_load"));
      if (stage > 0) return;
      const auto scope = engine->no_sync();
      EXPECT_NO_THROW(save("in_a_scope_without_gradients"));
    });
  }
}

TEST(SaveMoment, IsAtABoundaryForAPreemption) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_engine(window_of(3, 2), world);
    engine->install_preemption_handler({.signal = SIGUSR1});
    if (world.rank() == 1) ::raise(SIGUSR1);
    for (int micro_step = 0; micro_step < 12 && !engine->preemption_requested(); ++micro_step)
      train_step(*engine, micro_step);
    EXPECT_TRUE(engine->preemption_requested());
    EXPECT_NO_THROW(engine->save_checkpoint(folder.path()));
  });
}

// Whoever gives gradients up in the middle of a window goes on in the middle of it, resumed or not.
TEST(SaveMoment, IsAllowedOnceTheWindowsGradientsWereGivenUp) {
  for (const int stage : {0, 3}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto straight = make_engine(window_of(4, stage), world);
      for (int micro_step = 0; micro_step < 6; ++micro_step) train_step(*straight, micro_step);
      straight->zero_grad();
      straight->save_checkpoint(folder.path());
      const auto resumed = make_engine(window_of(4, stage), world);
      resumed->load_checkpoint(folder.path());
      EXPECT_EQ(resumed->micro_steps(), 2);
      for (int micro_step = 6; micro_step < 9; ++micro_step) {
        train_step(*straight, micro_step);
        train_step(*resumed, micro_step);
        EXPECT_EQ(resumed->global_steps(), straight->global_steps()) << micro_step;
      }
      EXPECT_EQ(resumed->global_steps(), 2);
      expect_equal_weights(*resumed, *straight);
      // Another window's length, another place in it.
      const auto shorter = make_engine(window_of(2, stage), world);
      shorter->load_checkpoint(folder.path());
      EXPECT_EQ(shorter->micro_steps(), 0);
    });
  }
}

}  // namespace
}  // namespace deepspeed
