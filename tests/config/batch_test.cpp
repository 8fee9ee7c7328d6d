#include "deepspeed/config/batch.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;
using Size = std::optional<int64_t>;
constexpr std::nullopt_t none = std::nullopt;

std::string error_with(const BatchSizes& given, int64_t world) {
  return testing::error_of<ConfigError>([&] { resolve_batch_sizes(given, world); });
}

TEST(Batch, InfersWhatIsAbsent) {
  struct Case {
    BatchSizes given;
    int64_t world, train, micro, steps;
  };
  const Case cases[] = {
      {{32, 16, 1}, 2, 32, 16, 1},    {{32, 8, 2}, 2, 32, 8, 2},     {{32, 4, none}, 2, 32, 4, 4},
      {{32, none, 4}, 2, 32, 4, 4},   {{none, 4, 3}, 2, 24, 4, 3},   {{32, none, none}, 4, 32, 8, 1},
      {{none, 4, none}, 4, 16, 4, 1}, {{1, none, none}, 1, 1, 1, 1}, {{none, 1, none}, 1, 1, 1, 1},
      {{96, 3, none}, 4, 96, 3, 8},   {{96, none, 8}, 4, 96, 3, 8},
  };
  for (const Case& c : cases) {
    const BatchSizes sizes = resolve_batch_sizes(c.given, c.world);
    EXPECT_EQ(sizes.train_batch_size, c.train);
    EXPECT_EQ(sizes.train_micro_batch_size_per_gpu, c.micro);
    EXPECT_EQ(sizes.gradient_accumulation_steps, c.steps);
  }
}

TEST(Batch, RefusesWhatDoesNotMultiplyOut) {
  struct Case {
    BatchSizes given;
    int64_t world;
    const char* key;
  };
  const Case cases[] = {
      {{33, 17, 2}, 2, "train_batch_size: got 33, expected 68"},
      {{32, 18, 1}, 2, "train_batch_size: got 32, expected 36"},
      {{33, 4, none}, 2, "train_batch_size: got 33, expected 32"},
      {{33, none, none}, 2, "train_batch_size: got 33, expected 32"},
      {{33, none, 2}, 2, "train_batch_size: got 33, expected 32"},
      {{none, none, none}, 1, "train_batch_size: got neither"},
      {{none, none, 2}, 1, "train_batch_size: got neither"},
      {{0, 1, 1}, 1, "train_batch_size: got 0"},
      {{-8, none, none}, 1, "train_batch_size: got -8"},
      {{8, 0, none}, 1, "train_micro_batch_size_per_gpu: got 0"},
      {{8, none, 0}, 1, "gradient_accumulation_steps: got 0"},
      {{2, none, none}, 4, "train_micro_batch_size_per_gpu: inferred as 0"},
      {{8, none, 16}, 1, "train_micro_batch_size_per_gpu: inferred as 0"},
      {{8, 16, none}, 1, "gradient_accumulation_steps: inferred as 0"},
      {{none, std::numeric_limits<int64_t>::max(), 2}, 1, "train_batch_size: train_micro_batch_size_per_gpu"},
  };
  for (const Case& c : cases) EXPECT_THAT(error_with(c.given, c.world), HasSubstr(c.key));
  EXPECT_ERROR(UsageError, resolve_batch_sizes({8, none, none}, 0),
               "data-parallel world size: got 0, expected at least 1");
}

TEST(Batch, KeepsTheProductForEverySizeItAccepts) {
  for (int64_t train = 1; train <= 24; ++train) {
    for (int64_t micro = 0; micro <= 8; ++micro) {
      for (int64_t steps = 0; steps <= 8; ++steps) {
        for (int64_t world = 1; world <= 4; ++world) {
          const BatchSizes given{train, micro ? Size(micro) : none, steps ? Size(steps) : none};
          if (error_with(given, world) != "no error") continue;
          const BatchSizes sizes = resolve_batch_sizes(given, world);
          EXPECT_EQ(*sizes.train_micro_batch_size_per_gpu * *sizes.gradient_accumulation_steps * world,
                    train);
          EXPECT_EQ(sizes.train_batch_size, train);
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepspeed::config
