#include "deepspeed/zero/shards/shard_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/shards/shard_home.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::zero {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr int64_t kPage = 4096;

ShardFileOptions file_options(const std::filesystem::path& folder, int64_t buffer_count = 2) {
  return {.folder = folder / "zero_stage_3" / "rank0",
          .aio = {.block_bytes = kPage, .queue_depth = 4},
          .buffer_count = buffer_count,
          .buffer_numel = 5000};
}

at::Tensor values_of(size_t index, int64_t numel, at::ScalarType dtype) {
  return at::arange(numel, at::kFloat).remainder(97).add(double(index)).to(dtype);
}

at::Tensor content_of(Shard& shard) {
  const at::Tensor values = at::empty({shard.numel()}, shard.dtype());
  shard.read(values);
  return values;
}

/// Holds shards of odd sizes, in two dtypes, with values.
struct FileWithShards {
  explicit FileWithShards(const ShardFileOptions& options) : file(std::make_shared<ShardFile>(options)) {
    const std::vector<int64_t> numels = {5000, 1, 1024, 4999, 7};
    for (size_t index = 0; index < numels.size(); ++index) {
      const at::ScalarType dtype = index % 2 == 0 ? at::kFloat : at::kBFloat16;
      shards.push_back(file->add("h." + std::to_string(index), numels[index], dtype));
      shards.back()->write(expected(index));
    }
  }
  at::Tensor expected(size_t index) const {
    return values_of(index, shards[index]->numel(), shards[index]->dtype());
  }

  std::shared_ptr<ShardFile> file;
  std::vector<std::shared_ptr<Shard>> shards;
};

TEST(ShardFile, GivesBackWhatWasWrittenInAnyOrderOfReads) {
  for (const int64_t buffers : {1, 2, 5, 100}) {
    const TemporaryFolder folder;
    FileWithShards all(file_options(folder.path(), buffers));
    for (const bool reads_ahead : {false, true}) {
      for (const std::vector<size_t>& order :
           std::vector<std::vector<size_t>>{{0, 1, 2, 3, 4}, {4, 2, 0, 3, 1}}) {
        if (reads_ahead) {
          // In another order than the reads: some are there, others in flight, or were evicted.
          for (const auto& shard : all.shards) shard->start_read();
        }
        for (const size_t index : order)
          EXPECT_TRUE(at::equal(content_of(*all.shards[index]), all.expected(index))) << index;
      }
    }
  }
}

TEST(ShardFile, ReadsAheadAsFarAsThereAreBuffers) {
  const TemporaryFolder folder;
  FileWithShards all(file_options(folder.path(), 2));
  EXPECT_TRUE(all.shards[0]->start_read());
  EXPECT_TRUE(all.shards[1]->start_read());
  EXPECT_TRUE(all.shards[0]->start_read());  // it is already there
  EXPECT_FALSE(all.shards[2]->start_read());
  EXPECT_TRUE(at::equal(content_of(*all.shards[0]), all.expected(0)));
  EXPECT_TRUE(all.shards[2]->start_read());
}

TEST(ShardFile, TakesItsBuffersFromTheLargestShardAndItsRoomFromAll) {
  const TemporaryFolder folder;
  FileWithShards all(file_options(folder.path(), 3));
  EXPECT_EQ(all.file->buffer_bytes(), 3 * 5 * kPage);  // 20,000 bytes in whole pages
  EXPECT_EQ(all.file->file_bytes(), (5 + 1 + 1 + 3 + 1) * kPage);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "zero_stage_3" / "rank0")) << "the file has no name";
}

TEST(ShardFile, ForgetsWhatItReadAheadWhereThatIsWritten) {
  const TemporaryFolder folder;
  FileWithShards all(file_options(folder.path()));
  all.shards[0]->start_read();
  all.shards[0]->write(values_of(9, 5000, at::kFloat));
  EXPECT_TRUE(at::equal(content_of(*all.shards[0]), values_of(9, 5000, at::kFloat)));
}

TEST(ShardFile, CastsAndPads) {
  const TemporaryFolder folder;
  FileWithShards all(file_options(folder.path()));
  all.shards[3]->write(at::ones({10}, at::kDouble));
  const at::Tensor values = at::empty({4999}, at::kFloat);
  all.shards[3]->read(values);
  EXPECT_EQ(values.narrow(0, 0, 10).sum().item<float>(), 10.0f);
  EXPECT_EQ(values.narrow(0, 10, 4989).abs().sum().item<float>(), 0.0f);
}

TEST(ShardFile, OutlivesWhatWasReadAheadOfAShardThatGoes) {
  const TemporaryFolder folder;
  FileWithShards all(file_options(folder.path()));
  all.shards[0]->start_read();
  all.shards[0].reset();
  EXPECT_TRUE(all.shards[1]->start_read());
  EXPECT_TRUE(all.shards[2]->start_read());
  EXPECT_TRUE(at::equal(content_of(*all.shards[1]), all.expected(1)));
}

TEST(ShardFile, NamesTheKeyThatDoesNotFit) {
  const TemporaryFolder folder;
  ShardFileOptions options = file_options(folder.path());
  const auto file = std::make_shared<ShardFile>(options);
  EXPECT_THAT(
      error_of<ConfigError>([&] { file->add("head.weight", 5001, at::kFloat); }),
      AllOf(HasSubstr("offload_param.buffer_size is 5000 elements"), HasSubstr("'head.weight' has 5001")));
  options.buffer_count = 0;
  EXPECT_THAT(error_of<ConfigError>([&] { std::make_shared<ShardFile>(options); }),
              HasSubstr("offload_param.buffer_count is 0"));
  options = {.folder = "/proc/none"};
  EXPECT_THAT(error_of<IoError>([&] { std::make_shared<ShardFile>(options); }),
              AllOf(HasSubstr("offload_param.nvme_path"), HasSubstr("/proc/none")));
}

TEST(ShardFile, SaysWhatItLacksOnADiskThatIsFull) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.string().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "a tmpfs cannot be mounted";
  {
    const auto file = std::make_shared<ShardFile>(file_options(folder.path()));
    const auto fits = file->add("small", 1000, at::kFloat);
    for (int shard = 0; shard < 3; ++shard) file->add("large", 5000, at::kFloat);
    EXPECT_THAT(error_of<IoError>([&] { file->add("too.large", 5000, at::kFloat); }),
                AllOf(HasSubstr("has no room for 20480 more bytes"), HasSubstr(folder.string()),
                      HasSubstr("No space left")));
    fits->write(values_of(1, 1000, at::kFloat));
    EXPECT_TRUE(at::equal(content_of(*fits), values_of(1, 1000, at::kFloat)));
  }
  ::umount2(folder.string().c_str(), MNT_DETACH);
}

TEST(ShardHome, KeepsInTheHostWhatFitsThereAndWhatIsSmallerThanABlock) {
  const TemporaryFolder folder;
  std::vector<NamedTensor> params;
  std::vector<int64_t> numels = {3000, 4000, 10, 2000};
  for (const int64_t numel : numels) params.push_back({"p" + std::to_string(numel), at::ones({numel})});
  ShardHomeOptions options{.place = ParamHome::kDisk,
                           .file = file_options(folder.path()),
                           .max_in_host_numel = 5000,
                           .min_file_bytes = kPage};
  ShardHome home(options);
  const auto group = home.make_group(params, ShardLayout(numels, 1, 0), at::kFloat);
  EXPECT_FALSE(group.flat.defined());
  std::vector<bool> in_memory;
  for (const auto& shard : group.shards) in_memory.push_back(shard->memory().defined());
  EXPECT_EQ(in_memory, (std::vector<bool>{true, false, true, true}));
}

TEST(ShardHome, GivesOtherGroupsOneFlatBuffer) {
  const std::vector<NamedTensor> params = {{"a", at::ones({5})}, {"b", at::ones({4})}};
  ShardHome home({.place = ParamHome::kHost});
  const auto group = home.make_group(params, ShardLayout({5, 4}, 2, 0), at::kBFloat16);
  EXPECT_EQ(group.flat.numel(), 5);
  group.shards[1]->write(at::ones({2}));
  EXPECT_TRUE(at::equal(group.flat, at::tensor({0, 0, 0, 1, 1}, at::kFloat).to(at::kBFloat16)));
}

}  // namespace
}  // namespace deepspeed::zero
