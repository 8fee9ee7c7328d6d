#include "deepspeed/base/env.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

TEST(Env, TreatsAnEmptyVariableAsUnset) {
  env::set("DEEPSPEED_TEST_VARIABLE", "");
  EXPECT_FALSE(env::get("DEEPSPEED_TEST_VARIABLE"));
  env::set("DEEPSPEED_TEST_VARIABLE", std::nullopt);
  EXPECT_FALSE(env::get_int("DEEPSPEED_TEST_VARIABLE"));
}

TEST(Env, NamesTheVariableThatIsNoNumber) {
  env::set("DEEPSPEED_TEST_VARIABLE", "12x");
  try {
    env::get_int("DEEPSPEED_TEST_VARIABLE");
    FAIL() << "12x is no number";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("DEEPSPEED_TEST_VARIABLE"), std::string::npos);
  }
  env::set("DEEPSPEED_TEST_VARIABLE", "-7");
  EXPECT_EQ(env::get_int("DEEPSPEED_TEST_VARIABLE"), -7);
}

}  // namespace
}  // namespace deepspeed
