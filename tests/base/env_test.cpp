#include "deepspeed/base/env.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

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
  EXPECT_ERROR(UsageError, env::get_int("DEEPSPEED_TEST_VARIABLE"), "DEEPSPEED_TEST_VARIABLE");
  env::set("DEEPSPEED_TEST_VARIABLE", "-7");
  EXPECT_EQ(env::get_int("DEEPSPEED_TEST_VARIABLE"), -7);
}

}  // namespace
}  // namespace deepspeed
