#include "deepspeed/config/table/coerce.h"

#include <limits>

#include <gtest/gtest.h>

namespace deepspeed::config {
namespace {

TEST(Coerce, TakesForATruthValueWhatDeepSpeedTakes) {
  for (const Json& value : {Json(true), Json(1), Json(1.0), Json("true"), Json("YES"), Json("on"), Json("t"),
                            Json("y"), Json("1")}) {
    EXPECT_EQ(as_bool(value), true) << value;
  }
  for (const Json& value : {Json(false), Json(0), Json(0.0), Json("False"), Json("no"), Json("OFF"),
                            Json("f"), Json("n"), Json("0")}) {
    EXPECT_EQ(as_bool(value), false) << value;
  }
  for (const Json& value :
       {Json(), Json(2), Json(-1), Json(0.5), Json("maybe"), Json(""), Json::array(), Json::object()}) {
    EXPECT_EQ(as_bool(value), std::nullopt) << value;
  }
}

TEST(Coerce, TakesForAWholeNumberWhatHasNoFraction) {
  EXPECT_EQ(as_int(5e8), 500'000'000);
  EXPECT_EQ(as_int(2.0), 2);
  EXPECT_EQ(as_int("16"), 16);
  EXPECT_EQ(as_int("-3"), -3);
  EXPECT_EQ(as_int("5e8"), 500'000'000);
  EXPECT_EQ(as_int(true), 1);
  EXPECT_EQ(as_int(std::numeric_limits<int64_t>::max()), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(as_int(std::numeric_limits<int64_t>::min()), std::numeric_limits<int64_t>::min());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Json& value :
       {Json(), Json(3686.4), Json("12x"), Json(""), Json(" 1"), Json(1e19), Json(infinity),
        Json(std::numeric_limits<double>::quiet_NaN()), Json(uint64_t{1} << 63), Json("1e400"),
        Json(9223372036854775808.0), Json::array({1})}) {
    EXPECT_EQ(as_int(value), std::nullopt) << value;
  }
}

TEST(Coerce, TakesForANumberWhatIsFinite) {
  EXPECT_EQ(as_float(3), 3.0);
  EXPECT_EQ(as_float("0.5"), 0.5);
  EXPECT_EQ(as_float("1e-3"), 1e-3);
  EXPECT_EQ(as_float(false), 0.0);
  for (const Json& value : {Json(), Json("inf"), Json("nan"), Json("1e400"),
                            Json(std::numeric_limits<double>::infinity()), Json("x"), Json::object()}) {
    EXPECT_EQ(as_float(value), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace deepspeed::config
