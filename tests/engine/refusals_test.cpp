// Calls that do not fit the engine, and settings of the config that find nothing in the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/data/sampler.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using testing::basic;
using ::testing::HasSubstr;
using testing::make_engine;

TEST(EngineCalls, LeaveNoReductionOutIfEachBackwardPartitions) {
  const auto engine = make_engine(basic({{"zero_optimization", {{"stage", 2}}}}));
  const auto [inputs, targets] = testing::odd_batch(0, 4);
  const at::Tensor loss = engine->forward(inputs, targets);
  EXPECT_ERROR(UsageError, engine->backward(loss, {.allreduce_gradients = false}),
               "allreduce_gradients = false does not fit ZeRO stage 2", "use stage 0 or 1");
}

TEST(EngineCalls, CoalesceOnceAtATime) {
  const auto engine = make_engine(basic());
  const auto outer = engine->coalesce_grad_reduction();
  EXPECT_ERROR(UsageError, (void)engine->coalesce_grad_reduction(), "inside coalesce_grad_reduction()");
}

TEST(EngineCalls, CoalesceIfTheEngineCountsMicroSteps) {
  const auto engine = make_engine(basic({{"managed_gradient_accumulation", false}}));
  EXPECT_ERROR(UsageError, (void)engine->coalesce_grad_reduction(), "needs managed_gradient_accumulation");
}

/// What initialize() logs, whatever level the configs of earlier tests have left.
std::string logged_by(const Json& config) {
  log::set_level(log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  make_engine(config);
  return ::testing::internal::GetCapturedStderr();
}

TEST(EngineConfig, SaysWhichSettingsFindNothingInTheModel) {
  const Json leaf = {{"stage", 3}, {"leaf_module", {{"names", {"no_such_block"}}}}};
  EXPECT_THAT(logged_by(basic({{"zero_optimization", leaf}})),
              HasSubstr("the model has no module 'no_such_block'"));
  const Json autocast = {
      {"enabled", true}, {"dtype", "bf16"}, {"lower_precision_safe_modules", {"torch.nn.Conv2d"}}};
  EXPECT_THAT(logged_by(basic({{"torch_autocast", autocast}})),
              HasSubstr("the model has no module of the classes named"));
}

TEST(EngineConfig, SaysThatAScheduleWithoutOptimizerIsNotUsed) {
  const Json config =
      basic({{"optimizer", nullptr}, {"scheduler", {{"type", "WarmupLR"}, {"params", Json::object()}}}});
  EXPECT_THAT(logged_by(config), HasSubstr("the schedule is not used: there is no optimizer"));
}

TEST(Sampler, TakesARankOfTheWorld) {
  SamplerOptions options;
  options.dataset_size = 4;
  options.world_size = 2;
  options.rank = 2;
  EXPECT_ERROR(UsageError, epoch_order(options, 0), "rank is 2, expected 0 to 1");
}

}  // namespace
}  // namespace deepspeed
