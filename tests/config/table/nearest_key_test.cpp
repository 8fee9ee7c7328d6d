#include "deepspeed/config/table/nearest_key.h"

#include <gtest/gtest.h>

namespace deepspeed::config {
namespace {

TEST(EditDistance, CountsEachKindOfMistakeOnce) {
  EXPECT_EQ(edit_distance("stage", "stage"), 0u);
  EXPECT_EQ(edit_distance("stage", "stge"), 1u);
  EXPECT_EQ(edit_distance("stage", "sttage"), 1u);
  EXPECT_EQ(edit_distance("stage", "stake"), 1u);
  EXPECT_EQ(edit_distance("stage", "satge"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestKey, FindsTheLikelyOneAndNoUnlikelyOne) {
  const std::vector<std::string> keys = {"loss_scale", "loss_scale_window", "enabled", "hysteresis"};
  EXPECT_EQ(nearest_key("los_scale", keys), "loss_scale");
  EXPECT_EQ(nearest_key("Loss_Scale", keys), "loss_scale");
  EXPECT_EQ(nearest_key("loss_scale_windw", keys), "loss_scale_window");
  EXPECT_EQ(nearest_key("enable", keys), "enabled");
  EXPECT_EQ(nearest_key("quantize", keys), "");
  EXPECT_EQ(nearest_key("", keys), "");
  EXPECT_EQ(nearest_key(std::string(100'000, 'x'), keys), "");
}

}  // namespace
}  // namespace deepspeed::config
