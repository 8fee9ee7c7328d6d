#include "deepspeed/comm/backends/identical_ranks.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/fake.h"

namespace deepspeed::comm {
namespace {

TEST(IdenticalRanks, SumWhatARankOwnsAndLeaveTheRest) {
  const std::vector<Interval> owned{{0, 2}, {2, 2}, {2, 5}};
  const auto reduced_on = [&](int rank) {
    const at::Tensor tensor = at::ones({6});
    make_fake_world(3, rank).group().reduce_to_owners(tensor, owned);
    return tensor;
  };
  EXPECT_TRUE(at::equal(reduced_on(0), at::tensor({3.0F, 3.0F, 1.0F, 1.0F, 1.0F, 1.0F})));
  EXPECT_TRUE(at::equal(reduced_on(1), at::ones({6})));
  EXPECT_TRUE(at::equal(reduced_on(2), at::tensor({1.0F, 1.0F, 3.0F, 3.0F, 3.0F, 1.0F})));
}

TEST(IdenticalRanks, PutTheSumElsewhere) {
  const at::Tensor tensor = at::ones({6}), result = at::zeros({2});
  const std::vector<Interval> owned{{0, 2}, {2, 4}, {4, 6}};
  make_fake_world(3, 1).group().start_reduce_to_owners(tensor, owned, {result, 0.5}).wait();
  EXPECT_TRUE(at::equal(result, at::full({2}, 1.5F)));
}

TEST(IdenticalRanks, DoNotWait) {
  const World world = make_fake_world(3, 1);
  const at::Tensor tensor = at::arange(4);
  world.group().recv(tensor, 2);
  EXPECT_TRUE(at::equal(tensor, at::arange(4)));
  const Work work = world.group().start_all_reduce(tensor);
  EXPECT_TRUE(work.is_completed());
  EXPECT_TRUE(at::equal(tensor, 3 * at::arange(4)));
  EXPECT_NO_THROW(world.group().monitored_barrier());
}

}  // namespace
}  // namespace deepspeed::comm
