// The emulation finds what is wrong in kernels. Errors that the sanitizers find end the process: death tests.
#include "cuda_emulation/wrong_kernels.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_emulation/emulation/grid.h"

namespace wrong_kernels {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHasSanitizers = true;
#else
constexpr bool kHasSanitizers = false;
#endif

/// The parameter is the seed of the threads' order.
class WrongKernels : public testing::TestWithParam<uint64_t> {
 protected:
  WrongKernels() { emulation::order_seed() = GetParam(); }
  ~WrongKernels() override { emulation::order_seed() = 0; }

  /// Runs the kernel, and returns the kinds of what was found.
  std::set<std::string> kinds_of(Kernel kernel, size_t offset = 0) {
    constexpr size_t kBytes = 512 * 4;
    const emulation::DeviceMemory in(kBytes, offset),
        out(kernel == Kernel::kOutsideOfGlobal ? 200 * 4 : kBytes);
    std::fill_n(static_cast<char*>(in.data()), in.bytes(), 0);
    std::fill_n(static_cast<char*>(out.data()), out.bytes(), 0);
    status_ = launch(kernel, in.data(), out.data(), 200);
    std::set<std::string> kinds;
    for (const auto& [kind, text] : emulation::take_findings()) kinds.insert(kind);
    return kinds;
  }

  cudaError_t status_ = cudaSuccess;
};

INSTANTIATE_TEST_SUITE_P(Orders, WrongKernels, testing::Values(0, 1, 12345));

TEST_P(WrongKernels, NothingIsFoundInRightOnes) {
  for (const Kernel right : {Kernel::kSum, Kernel::kBlocksThatAddAtomically, Kernel::kExchangeWithSyncwarp}) {
    EXPECT_THAT(kinds_of(right), IsEmpty());
    EXPECT_EQ(status_, cudaSuccess);
  }
}

TEST_P(WrongKernels, BarriersThatNotAllReachAreFound) {
  EXPECT_THAT(kinds_of(Kernel::kSkippedBarrier), ElementsAre("barrier"));
  EXPECT_EQ(status_, cudaErrorLaunchFailure);
  EXPECT_THAT(kinds_of(Kernel::kTwoBarriers), ElementsAre("barrier"));
  EXPECT_THAT(kinds_of(Kernel::kLoneReturn), ElementsAre("barrier"));
}

TEST_P(WrongKernels, MasksThatDoNotFitAreFound) {
  EXPECT_THAT(kinds_of(Kernel::kMaskOfAbsentLanes), Contains("warp"));
  EXPECT_THAT(kinds_of(Kernel::kLaneOutsideOfMask), ElementsAre("warp"));
}

TEST_P(WrongKernels, LaunchesThatAGpuRefusesFail) {
  EXPECT_THAT(kinds_of(Kernel::kTooManyThreads), IsEmpty());
  EXPECT_EQ(status_, cudaErrorInvalidConfiguration);
  EXPECT_THAT(kinds_of(Kernel::kTooMuchSharedMemory), IsEmpty());
  EXPECT_EQ(status_, cudaErrorInvalidValue);
  EXPECT_THAT(kinds_of(Kernel::kSum), IsEmpty());
  EXPECT_EQ(status_, cudaSuccess) << "an error belongs to its own launch";
}

TEST_P(WrongKernels, RacesAndUnwrittenMemoryAreFound) {
  if (!emulation::has_race_detector()) GTEST_SKIP() << "this build has no race detector";
  EXPECT_THAT(kinds_of(Kernel::kSumWithoutBarrier), ElementsAre("race"));
  EXPECT_THAT(kinds_of(Kernel::kBlocksThatRace), ElementsAre("race"));
  EXPECT_THAT(kinds_of(Kernel::kExchangeWithoutSyncwarp),
              Not(IsEmpty()));  // what is found depends on the order
  EXPECT_THAT(kinds_of(Kernel::kUnwrittenShared), ElementsAre("uninitialized"));
  EXPECT_THAT(kinds_of(Kernel::kOutsideOfGlobal), ElementsAre("foreign memory"));
  EXPECT_THAT(kinds_of(Kernel::kOutsideOfDynamicShared), ElementsAre("foreign memory"));
}

TEST_P(WrongKernels, AccessesOutsideArraysEndTheProcess) {
  if (!kHasSanitizers) GTEST_SKIP() << "this build has no sanitizers";
  EXPECT_DEATH(kinds_of(Kernel::kOutsideOfShared), "index 128 out of bounds|global-buffer-overflow");
  EXPECT_DEATH(kinds_of(Kernel::kOutsideOfDynamicShared), "heap-buffer-overflow");
  EXPECT_DEATH(kinds_of(Kernel::kOutsideOfGlobal), "heap-buffer-overflow");
  EXPECT_DEATH(kinds_of(Kernel::kMisalignedVector, 4), "misaligned address");
  EXPECT_DEATH(kinds_of(Kernel::kLongShift), "shift exponent .* is too large|left shift of 1 by");
}

}  // namespace
}  // namespace wrong_kernels
