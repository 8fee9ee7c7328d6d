#include "deepspeed/zero/offload/state_swapper.h"

#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::zero {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Access = StateSwapper::Access;

/// Holds a master and, from the first step on, a moment of each unit.
struct SwappedUnits {
  explicit SwappedUnits(const std::vector<int64_t>& numels) {
    for (const int64_t numel : numels) {
      tensors.push_back({at::full({numel}, double(tensors.size()), at::kFloat)});
      order.push_back(order.size());
    }
  }
  StateSwapper::TensorsOf all() {
    return [this](size_t unit) { return tensors[unit]; };
  }
  /// Computes m += 1, w += m. Like an optimizer, it makes its state at first use.
  void step(size_t unit) {
    auto& own = tensors[unit];
    if (own.size() == 1) own.push_back(at::zeros(own[0].sizes(), at::kDouble));
    own[1].add_(1.0);
    own[0].add_(own[1]);
  }

  std::vector<std::vector<at::Tensor>> tensors;
  std::vector<size_t> order;
};

const std::vector<int64_t> kOddNumels = {1000, 1, 70'001, 5000, 1024};

class Pipelines : public ::testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  StateSwapperOptions options() const {
    return {.folder = folder_ / "zero_stage_3" / "rank0",
            .aio = {.block_bytes = 4096, .queue_depth = 4},
            .pipeline_read = GetParam().first,
            .pipeline_write = GetParam().second};
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(StateSwapper, Pipelines,
                         ::testing::Values(std::pair(false, false), std::pair(true, false),
                                           std::pair(false, true), std::pair(true, true)));

TEST_P(Pipelines, StepAsInMemory) {
  SwappedUnits kept(kOddNumels), swapped(kOddNumels);
  StateSwapper swapper(options(), swapped.all());
  swapper.for_each(swapped.order, Access::kChange, [](size_t) {});
  EXPECT_EQ(swapped.tensors[2][0].numel(), 0);
  for (int step = 0; step < 3; ++step) {
    for (const size_t unit : kept.order) kept.step(unit);
    swapper.for_each(swapped.order, Access::kChange, [&](size_t unit) { swapped.step(unit); });
  }
  std::vector<size_t> seen;
  swapper.for_each({4, 0, 2, 1, 3}, Access::kRead, [&](size_t unit) {
    seen.push_back(unit);
    ASSERT_EQ(swapped.tensors[unit].size(), 2u);
    for (size_t index : {0, 1})
      EXPECT_TRUE(at::equal(swapped.tensors[unit][index], kept.tensors[unit][index])) << unit;
    swapped.tensors[unit][0].zero_();  // is not written
  });
  EXPECT_EQ(seen, (std::vector<size_t>{4, 0, 2, 1, 3}));
  swapper.for_each({2}, Access::kRead, [&](size_t unit) {
    EXPECT_TRUE(at::equal(swapped.tensors[unit][0], kept.tensors[unit][0]));
  });
}

TEST_P(Pipelines, HoldMemoryForAFewUnitsAlone) {
  SwappedUnits units(std::vector<int64_t>(20, 10'000));
  StateSwapper swapper(options(), units.all());
  swapper.for_each(units.order, Access::kChange, [](size_t) {});
  for (int step = 0; step < 2; ++step)
    swapper.for_each(units.order, Access::kChange, [&](size_t unit) { units.step(unit); });
  const int64_t of_unit = 40'960 + 81'920;
  const auto slots = 1 + int64_t(GetParam().first) + int64_t(GetParam().second);
  EXPECT_EQ(swapper.buffer_bytes(), slots * of_unit);
  EXPECT_EQ(swapper.file_bytes(), 20 * of_unit);
  for (const auto& own : units.tensors) {
    for (const at::Tensor& tensor : own) EXPECT_EQ(tensor.storage().nbytes(), 0u);
  }
}

TEST_P(Pipelines, LeaveNoFileAndNoDataBehindAnError) {
  SwappedUnits units(kOddNumels);
  {
    StateSwapper swapper(options(), units.all());
    swapper.for_each(units.order, Access::kChange, [](size_t) {});
    EXPECT_TRUE(std::filesystem::is_empty(options().folder));
    EXPECT_ERROR(std::runtime_error,
                 swapper.for_each(units.order, Access::kChange,
                                  [&](size_t unit) {
                                    units.tensors[unit][0].fill_(9.0);
                                    if (unit == 3) throw std::runtime_error("stop");
                                  }),
                 "stop");
    swapper.for_each(units.order, Access::kRead, [&](size_t unit) {
      const double wanted = unit < 3 ? 9.0 : double(unit);
      EXPECT_EQ(units.tensors[unit][0][0].item<double>(), wanted) << unit;
    });
  }
  EXPECT_TRUE(std::filesystem::is_empty(options().folder));
}

TEST_P(Pipelines, TakeOverTensorsThatAreExchanged) {
  SwappedUnits units(kOddNumels);
  StateSwapper swapper(options(), units.all());
  swapper.for_each(units.order, Access::kChange, [](size_t) {});
  swapper.for_each(units.order, Access::kChange, [&](size_t unit) {
    units.tensors[unit][0] = at::full({kOddNumels[unit]}, 5.0 + double(unit), at::kFloat);
  });
  EXPECT_EQ(units.tensors[2][0].numel(), 0);
  swapper.for_each(units.order, Access::kRead, [&](size_t unit) {
    EXPECT_TRUE(units.tensors[unit][0].eq(5.0 + double(unit)).all().item<bool>()) << unit;
  });
  EXPECT_THAT(error_of<UsageError>([&] {
                swapper.for_each({1}, Access::kChange,
                                 [&](size_t unit) { units.tensors[unit][0] = at::zeros({9}); });
              }),
              HasSubstr("36 bytes on cpu in the place of one of 4"));
}

TEST(StateSwapper, FoldersAndBuffersThatDoNotDoAreErrors) {
  SwappedUnits units({10});
  EXPECT_THAT(error_of<IoError>([&] { StateSwapper({.folder = "/proc/none"}, units.all()); }),
              HasSubstr("nvme_path: cannot make a file in \"/proc/none\""));
  const TemporaryFolder folder;
  StateSwapper swapper({.folder = folder.path(), .buffer_count = 1}, units.all());
  swapper.for_each({0}, Access::kChange, [](size_t) {});
  EXPECT_THAT(error_of<ConfigError>(
                  [&] { swapper.for_each({0}, Access::kChange, [&](size_t unit) { units.step(unit); }); }),
              HasSubstr("buffer_count is 1"));
}

}  // namespace
}  // namespace deepspeed::zero
