#include "deepspeed/comm/measure/measure.h"

#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using comm::measure_collectives;
using comm::Measured;
using comm::MeasureOptions;
using ::testing::HasSubstr;

TEST(MeasureCollectives, VerifiesAndTimesEveryOneOfEachSize) {
  for (const int num_ranks : {1, 2, 3}) {
    run_ranks(num_ranks, [](comm::World& world) {
      for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
        for (const bool in_buffers : {true, false}) {
          const MeasureOptions options{.sizes = {1, 4096, 100'000},
                                       .dtype = dtype,
                                       .warmups = 1,
                                       .trials = 2,
                                       .in_buffers = in_buffers};
          const auto all = measure_collectives(world.group(), options);
          ASSERT_EQ(all.size(), 3 * (comm::measured_operations().size() - (world.size() == 1)));
          for (const Measured& row : all) {
            EXPECT_GT(row.milliseconds, 0) << row.operation;
            EXPECT_GE(row.bytes, world.size() * int64_t(at::elementSize(dtype)));
            EXPECT_GT(row.bandwidth.algorithm, 0);
            EXPECT_EQ(row.milliseconds,
                      world.group().all_reduce_scalar(row.milliseconds, comm::ReduceOp::kMax));
          }
          EXPECT_EQ(all[1].bytes, 4096 / world.size() / int64_t(at::elementSize(dtype)) * world.size() *
                                      int64_t(at::elementSize(dtype)));
        }
      }
    });
  }
}

TEST(MeasureCollectives, RefuseWhatThereIsNot) {
  run_ranks(1, [](comm::World& world) {
    EXPECT_ERROR(UsageError, measure_collectives(world.group(), {.operations = {"gather"}}), "gather",
                 "all_reduce");
    EXPECT_ERROR(UsageError, measure_collectives(world.group(), {.sizes = {0}}), "size");
    EXPECT_ERROR(UsageError, measure_collectives(world.group(), {.trials = 0}), "trials");
  });
}

TEST(MeasuredText, HasATableAnOperation) {
  const std::vector<Measured> all{{"all_reduce", 1 << 20, 2, {8, 6}}, {"broadcast", 1 << 20, 1, {8, 8}}};
  const auto text = comm::measured_text(all, 4, /*in_gigabytes=*/false);
  EXPECT_THAT(text, HasSubstr("all_reduce, 4 ranks"));
  EXPECT_THAT(text, HasSubstr("algbw (Gbit/s)"));
  EXPECT_THAT(text, HasSubstr("1.00 MB         2.0000            8.000          6.000"));
  EXPECT_THAT(comm::measured_text(all, 4, /*in_gigabytes=*/true), HasSubstr("1.000          0.750"));
}

}  // namespace
}  // namespace deepspeed::testing
