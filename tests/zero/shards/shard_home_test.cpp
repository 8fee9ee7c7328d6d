#include "deepspeed/zero/shards/shard_home.h"

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/config/config.h"
#include "deepspeed/zero/shards/shard_home_options.h"

#include "tests/support/temporary_folder.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::floats_of;
using testing::marked_params;

config::DeepSpeedConfig config_with_params_on(const Json& offload_param) {
  return config::load_config(Json{{"train_batch_size", 8},
                                  {"zero_optimization", {{"stage", 3}, {"offload_param", offload_param}}},
                                  {"aio",
                                   {{"block_size", 8192},
                                    {"queue_depth", 5},
                                    {"intra_op_parallelism", 3},
                                    {"single_submit", true},
                                    {"overlap_events", false}}}},
                             8);
}

TEST(DiskChoice, KeepsWhatIsSmallAndWhatThereIsRoomFor) {
  DiskChoice choice(/*max_in_host_numel=*/100, /*min_file_bytes=*/64);
  EXPECT_FALSE(choice.takes(10, 40));   // small: it takes no room
  EXPECT_FALSE(choice.takes(60, 240));  // 40 are left
  EXPECT_TRUE(choice.takes(41, 164));
  EXPECT_FALSE(choice.takes(40, 160));
  EXPECT_TRUE(choice.takes(16, 64));
  EXPECT_FALSE(choice.takes(15, 60));
}

TEST(DiskChoice, TakesAllButWhatIsEmptyWithoutLimits) {
  DiskChoice choice(0, 0);
  EXPECT_TRUE(choice.takes(1, 2));
  EXPECT_FALSE(choice.takes(0, 0));
}

TEST(ShardHomeOptions, FollowOffloadParamAndAio) {
  const auto none = shard_home_options(config_with_params_on({{"device", "none"}}), at::kFloat, 3, true);
  EXPECT_EQ(none.place, ParamHome::kDevice);

  const auto cpu = config_with_params_on({{"device", "cpu"}, {"pin_memory", true}});
  EXPECT_EQ(shard_home_options(cpu, at::kFloat, 3, true).place, ParamHome::kHost);
  EXPECT_TRUE(shard_home_options(cpu, at::kFloat, 3, /*on_cuda=*/true).pin_memory);
  EXPECT_FALSE(shard_home_options(cpu, at::kFloat, 3, /*on_cuda=*/false).pin_memory);

  const auto nvme = config_with_params_on({{"device", "nvme"},
                                           {"nvme_path", "/local"},
                                           {"buffer_count", 7},
                                           {"buffer_size", 12345},
                                           {"max_in_cpu", 678},
                                           {"pin_memory", true}});
  const ShardHomeOptions disk = shard_home_options(nvme, at::kHalf, 3, true);
  EXPECT_EQ(disk.place, ParamHome::kDisk);
  EXPECT_EQ(disk.file.folder, "/local/zero_stage_3/float16params/rank3");
  EXPECT_EQ(shard_home_options(nvme, at::kBFloat16, 0, true).file.folder,
            "/local/zero_stage_3/bfloat16params/rank0");
  EXPECT_EQ(shard_home_options(nvme, at::kFloat, 0, true).file.folder,
            "/local/zero_stage_3/float32params/rank0");
  EXPECT_EQ(disk.file.buffer_count, 7);
  EXPECT_EQ(disk.file.buffer_numel, 12345);
  EXPECT_TRUE(disk.file.pin_memory);
  EXPECT_EQ(disk.file.aio.block_bytes, 8192U);
  EXPECT_EQ(disk.file.aio.queue_depth, 5U);
  EXPECT_EQ(disk.file.aio.num_threads, 3U);
  EXPECT_TRUE(disk.file.aio.single_submit);
  EXPECT_FALSE(disk.file.aio.overlap_events);
  EXPECT_EQ(disk.max_in_host_numel, 678);
  EXPECT_EQ(disk.min_file_bytes, 8192);
}

TEST(ShardHome, PutsTheShardsOfAGroupOneAfterTheOtherInMemory) {
  const NamedTensors params = marked_params({{5}, {2, 2}, {3}});
  const ShardLayout layout({5, 4, 3}, 2, 1000);  // shards of 3, 2 and 2
  for (const ParamHome place : {ParamHome::kDevice, ParamHome::kHost}) {
    ShardHome home({.place = place});
    EXPECT_EQ(home.file(), nullptr);
    const ShardHome::Group group = home.make_group(params, layout, at::kBFloat16);
    EXPECT_EQ(group.flat.scalar_type(), at::kBFloat16);
    EXPECT_THAT(floats_of(group.flat), ElementsAre(0, 0, 0, 0, 0, 0, 0));
    ASSERT_EQ(group.shards.size(), 3U);
    for (size_t index = 0; index < 3; ++index)
      group.shards[index]->write(at::empty({layout.shard_numel(index)}).fill_(double(index + 1)));
    EXPECT_THAT(floats_of(group.flat), ElementsAre(1, 1, 1, 2, 2, 3, 3));
    group.shards[1]->write(at::empty({1}).fill_(9.0));  // fewer: the rest is padding
    EXPECT_EQ(floats_of(group.flat)[3], 9);
    EXPECT_EQ(floats_of(group.flat)[5], 3);
  }
}

TEST(ShardHome, KeepsSomeShardsOfADiskInMemory) {
  const testing::TemporaryFolder folder;
  const NamedTensors params = marked_params({{10}, {6000}, {4000}, {8000}});
  const ShardLayout layout({10, 6000, 4000, 8000}, 2, 100'000);  // shards of 5, 3000, 2000 and 4000
  ShardHome home({.place = ParamHome::kDisk,
                  .file = {.folder = folder / "rank0",
                           .aio = {.block_bytes = 4096},
                           .buffer_count = 2,
                           .buffer_numel = 5000},
                  .max_in_host_numel = 2500,
                  .min_file_bytes = 64});
  const ShardHome::Group group = home.make_group(params, layout, at::kFloat);
  EXPECT_FALSE(group.flat.defined());
  ASSERT_EQ(group.shards.size(), 4U);
  EXPECT_TRUE(group.shards[0]->memory().defined());   // small
  EXPECT_FALSE(group.shards[1]->memory().defined());  // larger than the room
  EXPECT_TRUE(group.shards[2]->memory().defined());   // 500 are left
  EXPECT_FALSE(group.shards[3]->memory().defined());
  EXPECT_GE(home.file()->file_bytes(), int64_t{4} * (3000 + 4000));
  for (size_t index = 0; index < 4; ++index)
    group.shards[index]->write(at::empty({layout.shard_numel(index)}).fill_(double(index + 1)));
  for (size_t index = 0; index < 4; ++index) {
    const at::Tensor values = at::empty({layout.shard_numel(index)});
    group.shards[index]->read(values);
    EXPECT_THAT(floats_of(values), Each(float(index + 1))) << index;
  }
}

}  // namespace
}  // namespace deepspeed::zero
