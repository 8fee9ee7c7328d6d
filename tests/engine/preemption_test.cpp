#include "deepspeed/engine/step/preemption.h"

#include <csignal>

#include <gtest/gtest.h>

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::basic;
using testing::make_engine;
using testing::train_step;

TEST(Preemption, AllRanksLearnOfASignalToOneAfterTheSameUpdate) {
  testing::run_ranks(3, [](comm::World& world) {
    const auto engine = make_engine(basic(), world);
    engine->install_preemption_handler();
    int last_step = -1;
    for (int step = 0; step < 6 && last_step < 0; ++step) {
      if (step == 2 && world.rank() == 1) ::raise(SIGTERM);
      train_step(*engine, step);
      if (engine->preemption_requested()) last_step = step;
    }
    EXPECT_EQ(last_step, 3);
    EXPECT_EQ(engine->global_steps(), 4);
    train_step(*engine);  // who goes on may
    EXPECT_TRUE(engine->preemption_requested());
  });
}

TEST(Preemption, RanksCompareNotesAtUpdatesAndAsOftenAsAsked) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto engine = make_engine(basic({{"gradient_accumulation_steps", 2}}), world);
    engine->install_preemption_handler({.signal = SIGUSR1, .check_every = 3});
    if (world.rank() == 0) ::raise(SIGUSR1);
    std::vector<bool> requested;
    for (int micro_step = 0; micro_step < 8; ++micro_step) {
      train_step(*engine, micro_step);
      requested.push_back(engine->preemption_requested());
    }
    EXPECT_EQ(requested, (std::vector<bool>{false, false, false, false, false, false, false, true}));
  });
}

TEST(Preemption, EndsTheProcessWithoutAHandler) {
  const auto outcomes = testing::fork_ranks(1, [](int) {
    const auto engine = make_engine(basic());
    EXPECT_FALSE(engine->preemption_requested());
    ::raise(SIGTERM);
    return std::string();
  });
  EXPECT_EQ(outcomes[0].signal, SIGTERM);
}

TEST(Preemption, RefusesSignalsThatCannotBeCaughtAndNoInterval) {
  const auto engine = make_engine(basic());
  EXPECT_ERROR(UsageError, engine->install_preemption_handler({.signal = SIGKILL}),
               "signal 9 cannot be caught");
  EXPECT_ERROR(UsageError, engine->install_preemption_handler({.check_every = 0}),
               "check_every is 0, expected at least 1");
  EXPECT_FALSE(engine->preemption_requested());
}

}  // namespace
}  // namespace deepspeed
