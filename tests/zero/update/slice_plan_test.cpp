// Tests the places of masters and states, and the routes of weights, in a table of all cases.
#include "deepspeed/zero/update/slice_plan.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

constexpr auto kFp32 = at::kFloat, kFp64 = at::kDouble, kBf16 = at::kBFloat16;
constexpr auto kDevice = ParamHome::kDevice, kHost = ParamHome::kHost, kDisk = ParamHome::kDisk;
constexpr bool kOnCpu = true, kOnGpu = false;
constexpr auto kNone = OffloadDevice::kNone, kCpu = OffloadDevice::kCpu, kNvme = OffloadDevice::kNvme;

enum class Kept { kFp32Masters, kSplit, kSixteenBit };

/// Is a row: a slice's situation, whether it is offloaded, and the expected plan.
struct PlanRow {
  at::ScalarType dtype;
  Kept kept;
  bool on_cpu;
  ParamHome weights;
  OffloadDevice offload;
  bool super_offload;
  // Expected.
  ParamHome home;
  Masters masters;
  WeightRoute route;
  int64_t kept_bytes;
};

constexpr auto kWeights = Masters::kWeights, kHalves = Masters::kLowerHalves, kBeside = Masters::kBeside;
constexpr auto kInPlace = WeightRoute::kInPlace, kSent = WeightRoute::kSent, kFetched = WeightRoute::kFetched,
               kWritten = WeightRoute::kWritten;
constexpr auto kPlain = Kept::kFp32Masters, kSplit = Kept::kSplit, kSixteen = Kept::kSixteenBit;

const std::vector<PlanRow> kPlanRows = {
    // Without offload fp32 weights are the masters themselves.
    {kFp32, kPlain, kOnCpu, kDevice, kNone, false, kDevice, kWeights, kInPlace, 0},
    {kFp32, kPlain, kOnGpu, kDevice, kNone, false, kDevice, kWeights, kInPlace, 0},
    {kFp64, kPlain, kOnGpu, kDevice, kNone, false, kDevice, kWeights, kInPlace, 0},
    {kBf16, kPlain, kOnGpu, kDevice, kNone, false, kDevice, kBeside, kInPlace, 4},
    {kBf16, kSplit, kOnGpu, kDevice, kNone, false, kDevice, kHalves, kInPlace, 2},
    {kBf16, kSixteen, kOnGpu, kDevice, kNone, false, kDevice, kWeights, kInPlace, 0},
    // The step is in host memory, the weights are on a GPU.
    {kFp32, kPlain, kOnGpu, kDevice, kCpu, false, kHost, kBeside, kSent, 4},
    {kFp64, kPlain, kOnGpu, kDevice, kCpu, false, kHost, kBeside, kSent, 8},
    {kBf16, kPlain, kOnGpu, kDevice, kCpu, false, kHost, kBeside, kSent, 4},
    {kBf16, kSplit, kOnGpu, kDevice, kCpu, false, kHost, kHalves, kFetched, 2},
    {kBf16, kSixteen, kOnGpu, kDevice, kCpu, false, kHost, kWeights, kFetched, 0},
    {kFp32, kPlain, kOnGpu, kDevice, kNvme, false, kDisk, kBeside, kSent, 4},
    {kBf16, kSplit, kOnGpu, kDevice, kNvme, false, kDisk, kHalves, kFetched, 2},
    // On a CPU, host memory is the device's, so nothing is sent.
    {kFp32, kPlain, kOnCpu, kDevice, kCpu, false, kHost, kWeights, kInPlace, 0},
    {kBf16, kPlain, kOnCpu, kDevice, kCpu, false, kHost, kBeside, kInPlace, 4},
    {kFp32, kPlain, kOnCpu, kDevice, kNvme, false, kDisk, kWeights, kInPlace, 0},
    {kBf16, kSplit, kOnCpu, kDevice, kNvme, false, kDisk, kHalves, kInPlace, 2},
    // Shards in host memory: an offloaded step finds them there, a step on a GPU does not.
    {kFp32, kPlain, kOnGpu, kHost, kCpu, false, kHost, kWeights, kInPlace, 0},
    {kBf16, kSplit, kOnGpu, kHost, kCpu, false, kHost, kHalves, kInPlace, 2},
    {kFp32, kPlain, kOnCpu, kHost, kNone, false, kDevice, kWeights, kInPlace, 0},
    {kFp32, kPlain, kOnGpu, kHost, kNone, false, kDevice, kBeside, kWritten, 4},
    {kBf16, kPlain, kOnGpu, kHost, kNone, false, kDevice, kBeside, kWritten, 4},
    {kBf16, kSixteen, kOnGpu, kHost, kNone, false, kDevice, kWeights, kWritten, 0},
    // Shards on a disk are never in the memory of a step.
    {kFp32, kPlain, kOnCpu, kDisk, kNone, false, kDevice, kBeside, kWritten, 4},
    {kFp32, kPlain, kOnGpu, kDisk, kCpu, false, kHost, kBeside, kWritten, 4},
    {kBf16, kSixteen, kOnGpu, kDisk, kNvme, false, kDisk, kWeights, kWritten, 0},
    {kBf16, kSplit, kOnCpu, kDisk, kNvme, false, kDisk, kHalves, kWritten, 2},
    // super_offload: fp32 weights that backward still uses are not stepped in place.
    {kFp32, kPlain, kOnCpu, kDevice, kCpu, true, kHost, kBeside, kWritten, 4},
    {kFp32, kPlain, kOnCpu, kHost, kCpu, true, kHost, kBeside, kWritten, 4},
    {kFp32, kPlain, kOnGpu, kHost, kCpu, true, kHost, kBeside, kWritten, 4},
    {kFp32, kPlain, kOnGpu, kDevice, kCpu, true, kHost, kBeside, kSent, 4},
    {kBf16, kPlain, kOnCpu, kDevice, kCpu, true, kHost, kBeside, kInPlace, 4},
    {kBf16, kSplit, kOnGpu, kDevice, kCpu, true, kHost, kHalves, kFetched, 2},
};

SlicePlan plan_of(const PlanRow& row) {
  StepOptions options;
  options.sixteen_bit_masters = row.kept == Kept::kSixteenBit;
  options.split_masters = row.kept == Kept::kSplit;
  options.offload.device = row.offload;
  options.offload.super_offload = row.super_offload;
  return plan_slice({.dtype = row.dtype,
                     .home = row.weights,
                     .model_on_cpu = row.on_cpu,
                     .is_offloaded = row.offload != OffloadDevice::kNone},
                    options);
}

TEST(SlicePlan, SaysWhereMastersAreAndHowWeightsAreWritten) {
  for (size_t index = 0; index < kPlanRows.size(); ++index) {
    SCOPED_TRACE("row " + std::to_string(index));
    const PlanRow& row = kPlanRows[index];
    const SlicePlan plan = plan_of(row);
    EXPECT_EQ(plan.home, row.home);
    EXPECT_EQ(plan.masters, row.masters);
    EXPECT_EQ(plan.route, row.route);
    EXPECT_EQ(plan.kept_bytes(), row.kept_bytes);
    EXPECT_EQ(plan.crosses_memory, row.offload != OffloadDevice::kNone && !row.on_cpu);
    EXPECT_EQ(plan.steps_early, row.super_offload);
  }
}

TEST(SlicePlan, LeavesWhatAPartialOffloadDoesNotTakeOnTheDevice) {
  StepOptions options;
  options.offload.device = OffloadDevice::kNvme;
  options.offload.ratio = 0.5;
  options.offload.super_offload = true;
  const SlicePlan plan = plan_slice({.dtype = kFp32, .model_on_cpu = kOnGpu, .is_offloaded = false}, options);
  EXPECT_EQ(plan.home, kDevice);
  EXPECT_EQ(plan.route, kInPlace);
  EXPECT_FALSE(plan.steps_early);
  EXPECT_FALSE(plan.crosses_memory);
}

TEST(SlicePlan, CopiesOnACpuWhereItIsAskedTo) {
  StepOptions options;
  options.offload.device = OffloadDevice::kCpu;
  options.offload.always_copies = true;
  const SliceSituation slice{.dtype = kFp32, .model_on_cpu = kOnCpu, .is_offloaded = true};
  EXPECT_TRUE(plan_slice(slice, options).crosses_memory);
  EXPECT_EQ(plan_slice(slice, options).route, kSent);
}

TEST(SlicePlan, LetsNewWeightsWaitInTheGradientsMemoryWhereNobodyNeedsThese) {
  struct Case {
    at::ScalarType dtype;
    bool partitions_gradients;
    std::optional<at::ScalarType> accumulation;
    double ratio;
    bool check_overflow;
    bool has_waiting_memory;
  };
  for (const Case& one : {
           Case{kBf16, true, {}, 1.0, false, false}, Case{kBf16, true, kBf16, 1.0, false, false},
           Case{kBf16, true, kFp32, 1.0, false, true},  // of another size
           Case{kBf16, true, {}, 0.5, false, true},     // gradients stay on the device
           Case{kBf16, false, {}, 1.0, false, true},
           Case{kBf16, true, {}, 1.0, true, true},   // to take a step back
           Case{kFp32, true, {}, 0.5, true, false},  // the masters wait
       }) {
    StepOptions options;
    options.check_overflow = one.check_overflow;
    options.offload.device = OffloadDevice::kCpu;
    options.offload.ratio = one.ratio;
    options.offload.super_offload = true;
    const SlicePlan plan = plan_slice({.dtype = one.dtype,
                                       .model_on_cpu = kOnGpu,
                                       .is_offloaded = true,
                                       .partitions_gradients = one.partitions_gradients,
                                       .accumulation_dtype = one.accumulation},
                                      options);
    EXPECT_EQ(plan.has_waiting_memory, one.has_waiting_memory)
        << "ratio " << one.ratio << " overflow " << one.check_overflow << " partitioned "
        << one.partitions_gradients;
  }
}

}  // namespace
}  // namespace deepspeed::zero
