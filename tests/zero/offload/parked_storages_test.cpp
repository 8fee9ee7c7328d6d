#include "deepspeed/zero/offload/parked_storages.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <gtest/gtest.h>

#include "tests/support/counting_allocator.h"

namespace deepspeed::zero {
namespace {

TEST(ParkedStorages, ComeBackUnderAllViews) {
  const at::Tensor flat = at::arange(1000, at::kFloat);
  const at::Tensor view = flat.narrow(0, 100, 50), expected = flat.clone();
  ParkedStorages parked;
  parked.park(view, /*pin_memory=*/false, /*non_blocking=*/false);
  parked.park(flat, false, false);  // the same storage
  EXPECT_EQ(parked.bytes(), 4000);
  EXPECT_EQ(flat.const_data_ptr(), nullptr);
  EXPECT_EQ(flat.sizes(), expected.sizes());
  parked.restore(false);
  EXPECT_TRUE(parked.empty());
  EXPECT_TRUE(at::equal(flat, expected));
  EXPECT_TRUE(at::equal(view, expected.narrow(0, 100, 50)));
  view.zero_();
  EXPECT_EQ(flat[120].item<float>(), 0.0f);
}

TEST(ParkedStorages, FreeTheMemoryThatTheyLeave) {
  const testing::AllocationCounter counter;
  const at::Tensor tensor = at::arange(100'000, at::kFloat);
  ParkedStorages parked;
  parked.park(tensor, false, false);
  EXPECT_EQ(counter.live_bytes(), 400'000);  // only the copy
  parked.restore(false);
  EXPECT_EQ(counter.live_bytes(), 400'000);
}

TEST(ParkedStorages, GiveParametersNoElementsMeanwhile) {
  const at::Tensor flat = at::arange(12, at::kFloat), expected = flat.clone();
  const at::Tensor param = flat.narrow(0, 2, 6).view({2, 3}).detach().requires_grad_();
  ParkedStorages parked;
  EXPECT_FALSE(parked.holds(param));
  parked.park(param, false, false);
  parked.empty(param);
  EXPECT_TRUE(parked.holds(param));
  EXPECT_TRUE(parked.holds(flat));
  EXPECT_EQ(param.numel(), 0);
  EXPECT_TRUE(param.requires_grad());
  EXPECT_ANY_THROW(at::arange(3, at::kFloat).matmul(param));
  parked.park(param, false, false);  // it has no bytes now
  parked.empty(param);
  parked.restore(false);
  EXPECT_FALSE(parked.holds(param));
  EXPECT_TRUE(param.is_leaf());
  EXPECT_TRUE(param.storage().is_alias_of(flat.storage()));
  EXPECT_TRUE(at::equal(param, expected.narrow(0, 2, 6).view({2, 3})));
}

TEST(ParkedStorages, LeaveAloneWhatHasNoBytes) {
  ParkedStorages parked;
  parked.park({}, false, false);
  parked.park(at::arange(0, at::kFloat), false, false);
  EXPECT_TRUE(parked.empty());
}

}  // namespace
}  // namespace deepspeed::zero
