#include "deepspeed/zero/gradients/sums/kept_sums.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/params/param_store.h"

#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::floats_of;

KeptSums sums_of(const Interval& owned, bool on_host = false) {
  return {{owned},
          {at::TensorOptions(at::kFloat)},
          on_host ? std::make_unique<HostSums>(at::kCPU, /*pin_memory=*/false) : nullptr,
          ReplicaSum({}, {}, at::kCPU)};
}

TEST(KeptSums, HaveOneReductionOfAWindowOrTheSumOfSeveral) {
  for (const bool on_host : {false, true}) {
    KeptSums kept = sums_of({4, 8}, on_host);
    EXPECT_EQ(kept.is_on_host(), on_host);
    EXPECT_EQ(kept.bytes(), 16);
    const Averaging halves{1.0, 0.5};
    for (int window = 0; window < 2; ++window) {
      kept.take(0, {0, 2}, at::tensor({2.0F, 4.0F}), halves);
      kept.take(0, {2, 4}, at::tensor({6.0F, 8.0F}), Averaging::sum());
      kept.end_reduction(halves);
      EXPECT_THAT(floats_of(kept.part(0, {0, 4})), ElementsAre(1, 2, 6, 8)) << window;
      kept.take(0, {1, 3}, at::tensor({20.0F, 40.0F}), halves);
      EXPECT_THAT(floats_of(kept.part(0, {0, 4})), ElementsAre(1, 12, 26, 8)) << window;
      kept.clear();
    }
  }
}

TEST(KeptSums, ConvertPiecesOfAnotherDtype) {
  KeptSums kept = sums_of({0, 2});
  kept.take(0, {0, 2}, at::tensor({3.0F, 5.0F}).to(at::kBFloat16), {1.0, 0.5});
  EXPECT_THAT(floats_of(kept.part(0, {0, 2})), ElementsAre(1.5, 2.5));
}

TEST(KeptSums, WaitAgainAsTheShareThatTheNextReductionLeavesAsItIs) {
  const ParamStore store({testing::marked_params({{2, 3}, {4}})}, 2,
                         ParamStore::Options{at::kFloat, false, 1});
  const int64_t numel = store.groups()[0].layout.padded_numel();
  const Interval owned{numel / 2, numel};
  KeptSums kept = sums_of(owned);
  const Averaging averaging{0.25, 0.5};
  kept.take(0, {0, owned.numel()}, at::full({owned.numel()}, 16.0F), averaging);  // 8 is kept
  kept.end_reduction(averaging);
  WaitingSums waiting(store);
  waiting.make({at::TensorOptions(at::kFloat)});
  waiting.flat(0).fill_(7.0);
  kept.move_into(waiting);
  EXPECT_THAT(floats_of(waiting.flat(0).narrow(0, owned.begin, owned.numel())), Each(8.0F));
  kept.wait_again(waiting, /*num_ranks=*/2);
  EXPECT_THAT(floats_of(waiting.flat(0).narrow(0, 0, owned.begin)), Each(0.0F));
  EXPECT_THAT(floats_of(kept.part(0, {0, owned.numel()})), Each(64.0F));  // times 0.25 and 0.5 it is 8
  EXPECT_TRUE(waiting.has(0, 0) && waiting.has(0, 1));
  kept.wait_again(waiting, /*num_ranks=*/2);  // nothing was reduced since
  EXPECT_THAT(floats_of(kept.part(0, {0, owned.numel()})), Each(64.0F));
}

}  // namespace
}  // namespace deepspeed::zero
