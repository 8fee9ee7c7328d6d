// Which optimizers of the config train from ZeRO stage 1 on without zero_allow_untested_optimizer:
// DeepSpeed's list.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/named_type.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

TEST(TestedOptimizers, AreThoseOfDeepSpeedsListAndOthersAskForTheFlag) {
  const std::set<std::string> untested = {"Lamb", "SGD", "RMSprop"};
  run_ranks(1, [&](comm::World& world) {
    for (const config::NamedType& type : config::optimizer_types()) {
      const auto make = [&, world](int stage, bool flag) {
        return error_of<ConfigError>([&] {
          const auto engine = make_engine({{"train_micro_batch_size_per_gpu", 4},
                                           {"optimizer", {{"type", type.name}}},
                                           {"zero_allow_untested_optimizer", flag},
                                           {"zero_optimization", {{"stage", stage}}}},
                                          world);
          train_step(*engine);
        });
      };
      EXPECT_EQ(untested.count(type.name) == 1, type.needs_untested_flag) << type.name;
      EXPECT_EQ(make(0, false), "no error") << type.name;
      if (type.last_stage == 0) continue;
      EXPECT_EQ(make(1, true), "no error") << type.name;
      const bool refused = make(1, false).find("zero_allow_untested_optimizer: ") != std::string::npos;
      EXPECT_EQ(refused, type.needs_untested_flag) << type.name;
      EXPECT_EQ(make(int(std::min<int64_t>(type.last_stage, 2)), refused), "no error") << type.name;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
