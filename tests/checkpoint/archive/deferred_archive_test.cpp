#include "deepspeed/checkpoint/archive/deferred_archive.h"

#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr int64_t kNumel = 400'000;  // 1.6 MB of fp32

struct Written {
  Written() {
    const at::Tensor large = at::arange(kNumel, at::kFloat);
    sums = write_torch_archive(path(), Dict{{"large", large},
                                            {"part", large.narrow(0, 1000, 200'000).view({2, 100'000})},
                                            {"turned", large.view({1000, 400}).t()},
                                            {"half", large.to(at::kBFloat16)},
                                            {"small", at::arange(5)}});
  }
  std::filesystem::path path() const { return folder.path() / "file.pt"; }

  testing::TemporaryFolder folder;
  FileSums sums;
};

const at::Tensor& tensor_of(const DeferredArchive& archive, const char* key) {
  return archive.value().as_dict().at(key).as_tensor();
}

TEST(DeferredArchive, LeavesLargeTensorsInTheFile) {
  const Written file;
  const DeferredArchive archive(file.path());
  EXPECT_TRUE(tensor_of(archive, "large").is_meta());
  EXPECT_EQ(tensor_of(archive, "half").scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(tensor_of(archive, "small"), at::arange(5)));
  EXPECT_LT(archive.bytes_read(), 100'000U);
}

TEST(DeferredArchive, ReadsIntervalsInAnyDtype) {
  const Written file;
  for (const auto& sums : {std::optional<FileSums>(), std::optional(file.sums)}) {
    const DeferredArchive archive(file.path(), sums);
    const at::Tensor all = at::arange(kNumel, at::kFloat);
    const auto read = [&](const char* key, Interval elements, at::ScalarType type) {
      const at::Tensor destination = at::zeros({elements.numel()}, type);
      archive.read(tensor_of(archive, key), elements, destination);
      return destination;
    };
    EXPECT_TRUE(at::equal(read("large", {7, 390'000}, at::kFloat), all.narrow(0, 7, 389'993)));
    EXPECT_TRUE(at::equal(read("large", {0, kNumel}, at::kDouble), all.to(at::kDouble)));
    EXPECT_TRUE(at::equal(read("part", {99'999, 100'002}, at::kFloat), all.narrow(0, 100'999, 3)));
    EXPECT_TRUE(at::equal(read("half", {5, 300}, at::kFloat),
                          all.to(at::kBFloat16).to(at::kFloat).narrow(0, 5, 295)));
    EXPECT_TRUE(at::equal(read("small", {1, 4}, at::kLong), at::arange(1, 4)));
    EXPECT_EQ(read("large", {5, 5}, at::kFloat).numel(), 0);
    EXPECT_TRUE(at::equal(archive.load(tensor_of(archive, "turned")), all.view({1000, 400}).t()));
    EXPECT_TRUE(
        at::equal(archive.load(tensor_of(archive, "part")), all.narrow(0, 1000, 200'000).view({2, 100'000})));
    EXPECT_ERROR(CheckpointError,
                 archive.read(tensor_of(archive, "large"), {0, kNumel + 1}, at::empty({kNumel + 1})),
                 "file.pt", "cannot be read into " + std::to_string(kNumel + 1));
  }
}

TEST(DeferredArchive, LoadsAStorageOnceForAllOfItsViews) {
  const Written file;
  const DeferredArchive archive(file.path(), file.sums);
  const Value loaded = archive.load(archive.value());
  const auto at_key = [&](const char* key) { return loaded.as_dict().at(key).as_tensor(); };
  const at::Tensor all = at::arange(kNumel, at::kFloat);
  EXPECT_TRUE(at::equal(at_key("turned"), all.view({1000, 400}).t()));
  EXPECT_TRUE(at::equal(at_key("large"), all));
  EXPECT_TRUE(at_key("turned").is_alias_of(at_key("large")));
}

TEST(DeferredArchive, RefusesATensorThatIsNotItsOwn) {
  const Written file;
  const DeferredArchive archive(file.path());
  EXPECT_ERROR(UsageError, archive.load(at::ones({2}).to(at::kMeta)), "a tensor that is not of", "file.pt");
}

TEST(DeferredArchive, ReadsNoMoreThanTheIntervalNeeds) {
  const Written file;
  const DeferredArchive archive(file.path(), file.sums);
  const uint64_t before = archive.bytes_read();
  const at::Tensor destination = at::empty({200'000});
  archive.read(tensor_of(archive, "large"), {0, 200'000}, destination);
  EXPECT_LE(archive.bytes_read() - before, 800'000 + 2 * kSumChunkBytes);
}

TEST(DeferredArchive, NoticesAFlippedBitInWhatItReads) {
  const Written file;
  std::string bytes(std::istreambuf_iterator<char>(std::ifstream(file.path(), std::ios::binary).rdbuf()), {});
  bytes[bytes.size() / 3] ^= 1;  // inside "large"
  std::ofstream(file.path(), std::ios::binary) << bytes;
  const at::Tensor destination = at::empty({kNumel});
  const DeferredArchive verified(file.path(), file.sums);
  EXPECT_THAT(error_of<CheckpointError>([&] {
                verified.read(tensor_of(verified, "large"), {0, kNumel}, destination);
              }),
              HasSubstr("is altered"));
  // Without sums, the last part checks the record's own checksum.
  const DeferredArchive plain(file.path());
  const at::Tensor& large = tensor_of(plain, "large");
  plain.read(large, {0, kNumel / 2}, destination.narrow(0, 0, kNumel / 2));
  EXPECT_THAT(error_of<CheckpointError>([&] {
                plain.read(large, {kNumel / 2, kNumel}, destination.narrow(0, 0, kNumel / 2));
              }),
              HasSubstr("do not match their checksum"));
}

TEST(TorchArchive, WritesDeferredTensorsOneAfterTheOther) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file.pt";
  const at::Tensor first = at::empty({3, 4}, at::TensorOptions().device(at::kMeta));
  const at::Tensor second = at::empty({5}, at::TensorOptions().device(at::kMeta));
  int calls = 0;
  write_torch_archive(path, Dict{{"first", first}, {"alias", first}, {"second", second}},
                      [&](const at::Tensor& wanted) {
                        ++calls;
                        return at::arange(wanted.numel(), at::kFloat);
                      });
  EXPECT_EQ(calls, 2);
  const Value value = read_torch_archive(path);
  EXPECT_TRUE(at::equal(value.as_dict().at("first").as_tensor(), at::arange(12, at::kFloat).view({3, 4})));
  EXPECT_TRUE(at::equal(value.as_dict().at("second").as_tensor(), at::arange(5, at::kFloat)));
  EXPECT_EQ(value.as_dict().at("alias").as_tensor().const_data_ptr(),
            value.as_dict().at("first").as_tensor().const_data_ptr());
  EXPECT_ERROR(UsageError, write_torch_archive(path, Dict{{"first", first}}),
               "a tensor on the meta device has no data to save");
  EXPECT_ERROR(
      CheckpointError,
      write_torch_archive(path, Dict{{"first", first}}, [](const at::Tensor&) { return at::zeros({3}); }),
      "the record 'data/0' of 48 bytes came with 12");
}

}  // namespace
}  // namespace deepspeed::checkpoint
