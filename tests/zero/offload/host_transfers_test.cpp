#include "deepspeed/zero/offload/host_transfers.h"

#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using testing::floats_of;

/// Copies as if the CPU were another device.
HostTransfers copying_transfers() { return {at::kCPU, /*pin_memory=*/false, /*always_copies=*/true}; }

/// Returns tensors of alternating sizes and dtypes, so that a buffer serves several.
std::vector<at::Tensor> odd_sources() {
  std::vector<at::Tensor> sources;
  const std::vector<int64_t> numels = {3, 100, 1, 17, 100, 2, 64};
  for (size_t index = 0; index < numels.size(); ++index) {
    const at::ScalarType dtype = index % 2 == 0 ? at::kFloat : at::kBFloat16;
    sources.push_back(at::arange(numels[index], at::kFloat).add(double(index)).to(dtype));
  }
  return sources;
}

TEST(HostTransfers, GiveEachSourceInItsTurnUntilTheSecondCallFromThen) {
  HostTransfers transfers = copying_transfers();
  for (int round = 0; round < 2; ++round) {
    const std::vector<at::Tensor> sources = odd_sources();
    transfers.expect(sources);
    at::Tensor former;
    for (size_t index = 0; index < sources.size(); ++index) {
      const at::Tensor values = transfers.next();
      EXPECT_TRUE(at::equal(values, sources[index])) << index;
      EXPECT_EQ(values.scalar_type(), sources[index].scalar_type());
      EXPECT_FALSE(values.is_alias_of(sources[index]));
      if (index > 0) {
        EXPECT_TRUE(at::equal(former, sources[index - 1])) << index;
      }
      former = values;
    }
    EXPECT_ERROR(UsageError, transfers.next(), "nothing more is expected");
    transfers.finish();
  }
}

TEST(HostTransfers, SendBackWhatWasChanged) {
  HostTransfers transfers = copying_transfers();
  const std::vector<at::Tensor> sources = odd_sources();
  std::vector<at::Tensor> before;
  for (const at::Tensor& source : sources) before.push_back(source.clone());
  transfers.expect(sources, /*sends_back=*/true);
  for (const at::Tensor& source : sources) {
    transfers.next().add_(1);
    transfers.send_back(source);
  }
  transfers.finish();
  for (size_t index = 0; index < sources.size(); ++index)
    EXPECT_TRUE(at::equal(sources[index], before[index] + 1)) << index;
}

TEST(HostTransfers, SendValuesThroughTwoBuffers) {
  HostTransfers transfers = copying_transfers();
  std::vector<at::Tensor> targets;
  for (int64_t index = 0; index < 5; ++index) {
    targets.push_back(at::zeros({index + 2}));
    const at::Tensor outgoing = transfers.outgoing(index + 2, at::kFloat);
    ASSERT_EQ(outgoing.numel(), index + 2);
    outgoing.fill_(double(index + 1));
    transfers.send(targets.back(), outgoing);
  }
  const at::Tensor of_caller = at::arange(3, at::kFloat), target = at::zeros({3});
  transfers.outgoing(3, at::kFloat);
  transfers.send(target, of_caller);
  transfers.finish();
  for (int64_t index = 0; index < 5; ++index)
    EXPECT_THAT(floats_of(targets[index]), ::testing::Each(float(index + 1))) << index;
  EXPECT_THAT(floats_of(target), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace deepspeed::zero
