// Memory of the host that devices read, and who waits for whom before it changes or goes.
#include "deepspeed/device/accelerator/host_memory.h"

#include <array>
#include <memory>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include "deepspeed/comm/init.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/zero/access/gather_bucket.h"
#include "deepspeed/zero/offload/parked_storages.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/shards/shard_file.h"

#include "tests/simulated_cuda/device/streams.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kLarge = 1 << 20;  // bytes, from which on pinned memory has pages of its own

// A fresh thread's current device is 0, whichever one its process uses.
TEST(DeviceHostMemory, IsUnlockedOnAnyThreadAfterTheCopiesOfItsDevice) {
  run_ranks(2, [](comm::World&) {
    at::Tensor memory = device::empty_host(kLarge, at::kByte, true).zero_();
    const at::Tensor there = at::empty({kLarge}, at::TensorOptions(at::kByte).device(at::kCUDA));
    there.copy_(memory, /*non_blocking=*/true);
    std::thread([&] { memory.reset(); }).join();
  });
}

TEST(DeviceHostMemory, IsGivenBackWithoutAWaitForParkedStates) {
  const at::Tensor there = at::ones({kLarge}, at::TensorOptions(at::kByte).device(at::kCUDA));
  zero::ParkedStorages parked;
  parked.park(there, /*pin_memory=*/true, /*non_blocking=*/true);
  simulated::take_host_waits();
  parked.restore(/*non_blocking=*/true);
  const simulated::HostWaits waits = simulated::take_host_waits();
  EXPECT_EQ(waits.waits + waits.needless, 0) << waits.text();
  EXPECT_EQ(there.sum().item<int64_t>(), kLarge);
}

TEST(DeviceHostMemory, IsWrittenForAShardWhenAllStreamsHaveReadIt) {
  zero::MemoryShard shard(device::empty_host(100, at::kFloat, true).fill_(1.0), /*is_pinned=*/true);
  const at::Tensor aside = at::empty({100}, at::kCUDA), here = at::empty({100}, at::kCUDA);
  const device::SideStream side(at::Device(at::kCUDA, 0));
  {
    const auto scope = side.enter();
    shard.read(aside);
  }
  shard.read(here);
  shard.write(at::full({100}, 2.0, at::kCUDA));
  side.join();
  EXPECT_EQ(aside.sum().item<float>(), 100);
  EXPECT_EQ(here.sum().item<float>(), 100);
}

/// Two shards of a file that share one buffer, from which a device copies.
struct SharedBuffer {
  SharedBuffer() {
    for (size_t index = 0; index < shards.size(); ++index) {
      shards[index] = file->add("shard", 100, at::kFloat);
      shards[index]->write(at::full({100}, 1.0 + double(index)));
    }
    shards[0]->read(there);  // the host does not wait for the copy
  }
  TemporaryFolder folder;
  std::shared_ptr<zero::ShardFile> file = std::make_shared<zero::ShardFile>(
      zero::ShardFileOptions{.folder = folder.path(), .buffer_count = 1, .pin_memory = true});
  std::array<std::shared_ptr<zero::Shard>, 2> shards;
  at::Tensor there = at::empty({100}, at::kCUDA);
};

TEST(ShardFileBuffer, IsFilledAheadWhenTheDeviceHasReadIt) {
  const SharedBuffer used;
  EXPECT_TRUE(used.shards[1]->start_read());
  used.shards[1]->read(used.there);
  EXPECT_EQ(used.there.sum().item<float>(), 200);
}

TEST(ShardFileBuffer, IsFilledWhenTheDeviceHasReadIt) {
  const SharedBuffer used;
  used.shards[1]->read(used.there);
  EXPECT_EQ(used.there.sum().item<float>(), 200);
}

// What it gathers into is memory of the current stream, which other streams write.
TEST(GatheredBuckets, DieWhenTheirCopiesAreDone) {
  const comm::World world = comm::init_distributed({.dist_backend = "nccl", .verbose = false});
  const device::SideStream copies(at::Device(at::kCUDA, 0));
  zero::GatherBuffers buffers;
  const at::Tensor host = device::empty_host(100, at::kFloat, true).fill_(1.0);
  {
    const zero::GatherBucket bucket(world.group(), {std::make_shared<zero::MemoryShard>(host, true)},
                                    at::kFloat, at::Device(at::kCUDA, 0), copies, buffers,
                                    zero::Fetch::kAllGather);
  }
  buffers.drop_unused();
  EXPECT_EQ(at::ones({100}, at::kCUDA).sum().item<float>(), 100);
  comm::destroy_process_group();
}

}  // namespace
}  // namespace deepspeed::testing
