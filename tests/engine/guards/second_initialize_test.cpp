// Two engines on one model.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json at_stage(int stage) { return basic({{"zero_optimization", {{"stage", stage}}}}); }

TEST(SecondInitialize, NamesTheOtherEngineAndLeavesItAsItIs) {
  for (const int first : {0, 1, 2, 3}) {
    for (const int second : {0, 2, 3}) {
      SCOPED_TRACE(message(first, " and ", second));
      const auto model = std::make_shared<OddNet>();
      const auto engine = initialize(model, {.config = at_stage(first)}).engine;
      train_step(*engine);
      const std::string error =
          error_of<UsageError>([&] { initialize(model, {.config = at_stage(second)}); });
      EXPECT_THAT(error, AllOf(HasSubstr("another engine, of ZeRO stage " + std::to_string(first)),
                               HasSubstr("destroy()"), Not(HasSubstr("set_data"))));
      train_step(*engine);
      EXPECT_EQ(engine->global_steps(), 2);
    }
  }
}

TEST(SecondInitialize, TrainsIfTheFirstEngineIsDestroyed) {
  for (const int stage : {0, 1, 2}) {
    const auto model = std::make_shared<OddNet>();
    const auto engine = initialize(model, {.config = at_stage(stage)}).engine;
    engine->destroy();
    train_step(*initialize(model, {.config = at_stage(stage)}).engine);
  }
}

TEST(SecondInitialize, TrainsOtherParametersBesideTheFirst) {
  const auto model = std::make_shared<OddNet>();
  auto params = model->named_parameters();
  const auto engine_of = [&](const char* name) {
    return initialize(model, {.config = at_stage(1), .model_parameters = {{{params[name]}}}}).engine;
  };
  const auto one = engine_of("first.weight"), other = engine_of("last.weight");
  const auto [inputs, targets] = odd_batch(0, 4);
  const at::Tensor before = params["last.weight"].detach().clone();
  other->backward(other->forward(inputs, targets));
  other->step();
  EXPECT_FALSE(at::equal(before, params["last.weight"]));
}

}  // namespace
}  // namespace deepspeed::testing
