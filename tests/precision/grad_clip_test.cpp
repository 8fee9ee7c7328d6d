#include <cmath>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/precision/loss_scaler.h"

#include "tests/support/error_of.h"

namespace deepspeed::precision {
namespace {

TEST(CombinedGradientScale, OnlyUnscalesIfTheNormIsBelowTheClip) {
  EXPECT_DOUBLE_EQ(combined_gradient_scale(8 * 0.5, 8, 1.0), 1.0 / 8);
  EXPECT_DOUBLE_EQ(combined_gradient_scale(1e9, 8, 0), 1.0 / 8) << "a clip of 0 is no clipping";
}

TEST(CombinedGradientScale, BringsALargerNormToTheClip) {
  const double norm = 64.0, scale = 16.0, clip = 0.5;  // a true norm of 4
  EXPECT_DOUBLE_EQ(combined_gradient_scale(norm, scale, clip), 1 / (scale * ((norm / scale + 1e-6) / clip)));
  EXPECT_NEAR(norm * combined_gradient_scale(norm, scale, clip), clip, 1e-6);
}

TEST(CombinedGradientScale, RejectsWhatIsNoScaleNormOrClip) {
  EXPECT_ERROR(UsageError, combined_gradient_scale(1, 0, 1), "loss_scale is 0, expected a positive number");
  EXPECT_ERROR(UsageError, combined_gradient_scale(1, 1, -1), "clip is -1, expected a number of at least 0");
  EXPECT_ERROR(UsageError, combined_gradient_scale(std::nan(""), 1, 1),
               "the norm is nan, expected a number of at least 0");
}

}  // namespace
}  // namespace deepspeed::precision
