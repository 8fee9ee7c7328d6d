#include "deepspeed/device/threads/ordered_worker.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <ATen/Parallel.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "deepspeed/device/threads/threads.h"

#include "tests/support/error_of.h"

namespace deepspeed::device {
namespace {

using ::testing::ElementsAre;

Cores affinity_of_this_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof(mask), &mask);
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

TEST(CoreBinding, TheLastCoresAreDeepSpeedsPart) {
  const Cores ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(last_cores(ten, 0.8), ::testing::SizeIs(9));  // int((1 - 0.8) * 10) is 1, in doubles
  EXPECT_THAT(last_cores(ten, 0.5), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(last_cores(ten, 0.0), ElementsAre(9));
  EXPECT_THAT(last_cores(ten, 1.0), ::testing::SizeIs(9));
  EXPECT_THAT(last_cores({4}, 0.5), ElementsAre(4));
}

TEST(CoreBinding, RanksOfAMachineShareItsCores) {
  const Cores all = cores_of_rank(0, 1);
  EXPECT_EQ(all, affinity_of_this_thread());
  if (all.size() < 2) GTEST_SKIP() << "one core";
  const Cores first = cores_of_rank(0, 2), second = cores_of_rank(1, 2);
  EXPECT_EQ(first.size(), second.size());
  EXPECT_LT(first.back(), second.front());
  for (int rank = 0; rank < 7; ++rank) EXPECT_FALSE(cores_of_rank(rank, 7).empty());
}

TEST(CoreBinding, HoldsForTheThreadAndItsParallelRegions) {
  const Cores own = {cores_of_rank(0, 1).back()};
  const int threads = at::get_num_threads();
  const Cores before = affinity_of_this_thread();
  std::thread([&] {
    bind_this_thread(own);
    EXPECT_EQ(affinity_of_this_thread(), own);
    EXPECT_EQ(at::get_num_threads(), 1);
  }).join();
  EXPECT_EQ(at::get_num_threads(), threads);
  EXPECT_EQ(affinity_of_this_thread(), before);
}

TEST(OrderedWorker, DoesOneAfterTheOther) {
  OrderedWorker worker(cores_of_rank(0, 1));
  std::vector<int> done;
  for (int index = 0; index < 50; ++index) {
    worker.add([&done, index] {
      std::this_thread::sleep_for(std::chrono::microseconds(index % 5));
      done.push_back(index);
    });
  }
  worker.wait_for(1);
  worker.wait();
  ASSERT_EQ(done.size(), 50U);
  for (int index = 0; index < 50; ++index) EXPECT_EQ(done[size_t(index)], index);
}

TEST(OrderedWorker, SaysWhatWasThrownUntilItIsForgotten) {
  OrderedWorker worker(cores_of_rank(0, 1));
  std::atomic<bool> was_done_after = false;
  worker.add([] {});
  worker.add([] { throw std::runtime_error("no more"); });
  worker.add([&] { was_done_after = true; });
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(testing::error_of<std::runtime_error>([&] { worker.wait(); }), "no more");
  EXPECT_FALSE(was_done_after);
  worker.forget_error();
  worker.add([&] { was_done_after = true; });
  worker.wait();
  EXPECT_TRUE(was_done_after);
}

}  // namespace
}  // namespace deepspeed::device
