// Keys of activation_checkpointing act through checkpointing::configure(), which a line of the log says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpointing.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string log_of_engine(const Json& section) {
  ::testing::internal::CaptureStderr();
  make_engine(basic({{"activation_checkpointing", section}, {"log_level", "info"}}));
  return ::testing::internal::GetCapturedStderr();
}

TEST(CheckpointingKeys, AreNamedIfNoRegionsAreConfigured) {
  run_ranks(1, [](comm::World&) {  // what is configured holds for a process
    const Json off = {{"profile", false}, {"cpu_checkpointing", false}};
    const Json on = {{"profile", false}, {"cpu_checkpointing", true}, {"number_checkpoints", 4}};
    const std::string told = "activation_checkpointing: cpu_checkpointing, number_checkpoints will act";
    ASSERT_FALSE(checkpointing::is_configured());
    EXPECT_THAT(log_of_engine(off), Not(HasSubstr("activation_checkpointing")));
    EXPECT_THAT(log_of_engine(on),
                AllOf(HasSubstr(told), HasSubstr("checkpointing::configure() gets this config")));
    checkpointing::configure(nullptr, {.deepspeed_config = basic({{"activation_checkpointing", on}})});
    EXPECT_THAT(log_of_engine(on), Not(HasSubstr("activation_checkpointing")));
  });
}

TEST(CheckpointingKeys, AreRefusedIfTheyContradictEachOther) {
  EXPECT_ERROR(
      ConfigError,
      make_engine(basic({{"activation_checkpointing", {{"contiguous_memory_optimization", true}}}})),
      "activation_checkpointing.contiguous_memory_optimization: got true beside partition_activations");
}

}  // namespace
}  // namespace deepspeed::testing
