// Tests when an operation that a rank does not wait for reports that it is done.
#include <thread>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/comm/functions.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::run_ranks;

/// Polls until the work is done or a minute is over.
bool completes(const Work& work) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!work.is_completed()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Work, OfNothingIsDone) { EXPECT_TRUE(Work().is_completed()); }

TEST(Work, OfACollectiveIsDoneOnceTheOtherRankHasCome) {
  run_ranks(2, [](World& world) {
    const ProcessGroup& group = world.group();
    const at::Tensor values = at::full({3}, world.rank() + 1.0), asked = at::zeros({1});
    if (world.rank() == 0) {
      group.recv(asked, 1);
      group.broadcast(values, 0);
      return;
    }
    Work work = group.start_broadcast(values, 0);
    EXPECT_FALSE(work.is_completed());
    group.send(asked, 0);
    EXPECT_TRUE(completes(work));
    work.wait();
    EXPECT_TRUE(work.is_completed());
    EXPECT_TRUE(at::equal(values, at::full({3}, 1.0)));
  });
}

TEST(Work, OfAMessageOverGlooIsDoneByWaitAlone) {
  run_ranks(2, [](World& world) {
    const at::Tensor value = at::full({1}, world.rank() + 1.0);
    Work work = world.rank() == 0 ? world.group().start_send(value, 1) : world.group().start_recv(value, 0);
    EXPECT_FALSE(work.is_completed());
    work.wait();
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(value.item<float>(), 1.0F);
  });
}

TEST(Work, OfSeveralPartsIsDoneOnceAllAre) {
  run_ranks(2, [](World& world) {
    const at::Tensor sum = at::zeros({2});
    Work work = reduce_scatter(sum, {at::full({2}, 1.0), at::full({2}, 2.0)}, ReduceOp::kSum, {},
                               /*async_op=*/true);
    EXPECT_TRUE(completes(work));
    work.wait();
    EXPECT_TRUE(at::equal(sum, at::full({2}, 2.0 * (world.rank() + 1))));
  });
}

}  // namespace
}  // namespace deepspeed::comm
