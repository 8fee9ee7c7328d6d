#include "deepspeed/precision/loss_scaler.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::precision {
namespace {

// The scales after each update; 'T' is an overflow.
std::vector<double> scales(const DynamicLossScalerOptions& options, const std::string& updates) {
  DynamicLossScaler scaler(options);
  std::vector<double> result = {scaler.scale()};
  for (const char update : updates) {
    scaler.update(update == 'T');
    result.push_back(scaler.scale());
  }
  return result;
}

using Scales = std::vector<double>;

TEST(DynamicLossScaler, DoublesAfterEachWindow) {
  EXPECT_EQ(scales({.initial_scale = 256, .scale_window = 2, .hysteresis = 1}, "FFFFFFFF"),
            (Scales{256, 256, 256, 512, 512, 1024, 1024, 2048, 2048}));
}

TEST(DynamicLossScaler, ToleratesAsManyOverflowsAsTheHysteresisSays) {
  EXPECT_EQ(scales({.initial_scale = 256, .scale_window = 2, .hysteresis = 2}, "TTTFFFTTFFFF"),
            (Scales{256, 256, 128, 64, 64, 64, 128, 128, 64, 64, 64, 128, 128}));
  EXPECT_EQ(scales({.initial_scale = 256, .scale_window = 10, .hysteresis = 2}, "TFTFTT"),
            (Scales{256, 256, 256, 128, 128, 64, 32}));
}

TEST(DynamicLossScaler, ConsecutiveHysteresisStartsAgainAfterAGoodStep) {
  EXPECT_EQ(
      scales({.initial_scale = 256, .scale_window = 10, .hysteresis = 2, .consecutive_hysteresis = true},
             "TFTFTT"),
      (Scales{256, 256, 256, 256, 256, 256, 128}));
}

TEST(DynamicLossScaler, ThrowsWhenItOverflowsAtItsMinimum) {
  DynamicLossScaler scaler({.initial_scale = 4, .min_scale = 1, .hysteresis = 1});
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_ERROR(UsageError, scaler.update(true), "at its minimum, 1", "still overflow", "train with bf16");
}

TEST(DynamicLossScaler, ContinuesFromAState) {
  const DynamicLossScalerOptions options{.initial_scale = 256, .scale_window = 2, .hysteresis = 2};
  DynamicLossScaler first(options);
  for (const bool overflow : {true, true, false, false}) first.update(overflow);
  DynamicLossScaler second(options);
  second.set_state(first.state());
  for (const bool overflow : {false, false, true, true, false}) {
    first.update(overflow);
    second.update(overflow);
    EXPECT_EQ(second.scale(), first.scale());
    EXPECT_EQ(second.state().cur_hysteresis, first.state().cur_hysteresis);
  }
}

TEST(DynamicLossScaler, RejectsOptionsThatCannotWork) {
  EXPECT_ERROR(UsageError, DynamicLossScaler({.initial_scale = 0}), "initial_scale 0",
               "expected positive numbers");
  EXPECT_ERROR(UsageError, DynamicLossScaler({.scale_window = 0}), "scale_window 0", "expected at least 1");
  EXPECT_ERROR(UsageError, DynamicLossScaler({.hysteresis = 0}), "hysteresis 0", "expected at least 1");
}

TEST(StaticLossScaler, NeverMoves) {
  StaticLossScaler scaler(128);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_FALSE(scaler.is_dynamic());
}

TEST(DynamicLossScaler, StaysAtItsMinimumWithoutAnErrorIfAsked) {
  DynamicLossScaler scaler({.initial_scale = 4.0, .hysteresis = 1, .raise_error_at_min_scale = false});
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(scaler.is_exhausted());
    scaler.update(true);
  }
  EXPECT_EQ(scaler.scale(), 1.0);
  scaler.set_raise_error_at_min_scale(true);
  EXPECT_TRUE(scaler.is_exhausted());
  EXPECT_ERROR(UsageError, scaler.update(true), "at its minimum, 1", "train with bf16");
}

}  // namespace
}  // namespace deepspeed::precision
