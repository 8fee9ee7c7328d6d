#include "deepspeed/comm/watch/own_thread.h"

#include <chrono>
#include <thread>

#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include "deepspeed/comm/init.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using namespace std::chrono_literals;

TEST(OwnThread, MayWaitWhileTheProgramsWaitInAnotherGroup) {
  testing::run_ranks(2, [](World& world) {
    const ProcessGroup beside = world.new_group({0, 1}, "beside");
    const auto meet_beside = [&](std::chrono::seconds later) {
      return std::thread([&beside, later] {
        const OwnThread apart;
        std::this_thread::sleep_for(later);
        EXPECT_EQ(beside.all_reduce_scalar(1), 2);
      });
    };
    // For a few seconds, rank 0 waits for rank 1 in the world, while rank 1's own thread waits for rank 0's.
    std::thread thread = meet_beside(world.rank() == 0 ? 5s : 0s);
    if (world.rank() == 1) std::this_thread::sleep_for(4s);
    world.group().all_reduce(at::ones({8}));
    thread.join();
  });
}

}  // namespace
}  // namespace deepspeed::comm
