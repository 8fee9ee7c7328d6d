// What an engine writes to the log because its config says so, and the loss scale's lower end.
#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The log lines of a run on this rank.
template <class Run>
std::string lines_of(const Run& run) {
  ::testing::internal::CaptureStderr();
  run();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Output, StepsPerPrintWritesALineEverySoManySteps) {
  run_ranks(2, [](comm::World& world) {
    const auto lines = lines_of([&] {
      const auto engine = make_engine(basic({{"log_level", "info"},
                                             {"steps_per_print", 2},
                                             {"gradient_accumulation_steps", 2},
                                             {"gradient_clipping", 1.0}}),
                                      world);
      for (int micro = 0; micro < 10; ++micro) {
        auto [inputs, targets] = odd_batch(micro, 4);
        if (micro == 5) targets.fill_(std::numeric_limits<float>::infinity());
        engine->backward(engine->forward(inputs, targets));
        engine->step();
      }
    });
    EXPECT_EQ(lines.find("step=1,"), std::string::npos) << lines;
    EXPECT_EQ(lines.find("step=3,"), std::string::npos) << lines;
    if (world.rank() == 0) {
      EXPECT_THAT(lines, HasSubstr("step=2, skipped=0, lr=[0.01], mom=[(0.9, 0.999)]"));
      EXPECT_THAT(lines, HasSubstr("step=4, skipped=1, lr=[0.01], mom=[(0.9, 0.999)]"));
    } else {
      EXPECT_EQ(lines.find("step="), std::string::npos) << lines;
    }
    const auto silent = lines_of([&] { train_step(*make_engine(basic({{"log_level", "info"}}), world)); });
    EXPECT_EQ(silent.find("step="), std::string::npos) << silent;
  });
}

TEST(Output, DumpStateWritesTheConfigOnce) {
  run_ranks(2, [](comm::World& world) {
    for (const bool dump : {false, true}) {
      const auto lines = lines_of([&] {
        make_engine(basic({{"log_level", "info"}, {"dump_state", dump}, {"gradient_clipping", 0.125}}),
                    world);
      });
      const bool is_there = lines.find("\"gradient_clipping\": 0.125") != std::string::npos;
      EXPECT_EQ(is_there, dump && world.rank() == 0) << lines;
    }
  });
}

TEST(Output, WarnsOfAVocabularyThatIsNotAMultipleOf8) {
  const auto lines = [](int64_t size) {
    return lines_of([&] { make_engine(basic({{"log_level", "warning"}, {"vocabulary_size", size}})); });
  };
  EXPECT_THAT(lines(50257), HasSubstr("vocabulary_size 50257"));
  EXPECT_EQ(lines(50304), "");
}

TEST(MinLossScale, IsWhereHalvingEnds) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(message("stage ", stage));
      const auto engine = make_engine(
          basic(
              {{"log_level", "error"},
               {"zero_optimization", {{"stage", stage}}},
               {"fp16",
                {{"enabled", true}, {"initial_scale_power", 4}, {"hysteresis", 1}, {"min_loss_scale", 4}}}}),
          world);
      const auto overflow = [&] {
        auto [inputs, targets] = odd_batch(0, 4);
        if (world.rank() == 1) targets.fill_(std::numeric_limits<float>::infinity());
        engine->backward(engine->forward(inputs.to(at::kHalf), targets));
        engine->step();
      };
      std::vector<double> scales;
      for (int step = 0; step < 2; ++step) {
        overflow();
        scales.push_back(engine->loss_scale());
      }
      EXPECT_EQ(scales, (std::vector<double>{8.0, 4.0}));
      EXPECT_THAT(overflow,
                  ::testing::ThrowsMessage<UsageError>(HasSubstr("loss scale, 4, is at its minimum")));
      train_step(*engine);
      EXPECT_TRUE(engine->was_step_applied());
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
