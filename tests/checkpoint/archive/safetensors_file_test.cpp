#include "deepspeed/checkpoint/archive/safetensors_file.h"

#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/safetensors.h"

#include "tests/checkpoint/archive/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// Returns a file with this header and `data_bytes` bytes of data.
std::string file_with(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t byte = 0; byte < 8; ++byte) bytes[byte] = char(uint64_t(header.size()) >> (8 * byte));
  return bytes + header + std::string(data_bytes, '\1');
}

TEST(SafetensorsFile, ShowsNamesSizesAndDtypesAndReadsOneTensorAtATime) {
  const testing::TemporaryFolder folder;
  const NamedTensors written = {{"large", at::arange(500'000, at::kFloat).view({500, 1000})},
                                {"half", at::ones({3}, at::kBFloat16)},
                                {"empty", at::ones({0, 2})},
                                {"scalar", at::ones({}, at::kLong)}};
  write_safetensors(folder / "x.safetensors", written);
  const testing::LargestAllocation largest;
  const SafetensorsFile file(folder / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 4u);
  for (const auto& [name, tensor] : file.tensors()) EXPECT_TRUE(tensor.is_meta()) << name;
  EXPECT_TRUE(at::equal(file.load("half"), written[1].tensor));
  EXPECT_EQ(file.load("empty").sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(file.load("scalar").item<int64_t>(), 1);
  EXPECT_LT(largest.bytes(), 100'000u);
  EXPECT_TRUE(at::equal(file.load("large"), written[0].tensor));
  EXPECT_FALSE(file.has("other"));
  EXPECT_ERROR(UsageError, file.load("other"), "x.safetensors\" has no tensor 'other'");
}

TEST(SafetensorsFile, ComparesWithTheSumsOfItsWriter) {
  const testing::TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  const FileSums sums = write_safetensors(path, {{"x", at::arange(1000, at::kFloat)}});
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-2, std::ios::end);
  stream.put('\x55');
  stream.close();
  EXPECT_ERROR(CheckpointError, SafetensorsFile(path, sums).load("x"), "x.safetensors\" is altered",
               "do not match their checksum");
  EXPECT_NO_THROW(SafetensorsFile(path).load("x"));  // the format has no checksum
}

TEST(SafetensorsFile, RefusesHeadersThatDoNotFitTheData) {
  const testing::TemporaryFolder folder;
  const auto refusal = [&](const std::string& header, size_t data_bytes) {
    const auto path = folder.write("x.safetensors", file_with(header, data_bytes));
    return error_of<CheckpointError>([&] { SafetensorsFile file(path); });
  };
  const std::string x = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(refusal("{" + x + "}", 8), "no error");
  EXPECT_EQ(refusal("{}", 0), "no error");
  EXPECT_THAT(refusal("{" + x + "}", 12), HasSubstr("there are 12 bytes of data, the header describes 8"));
  EXPECT_THAT(refusal("{" + x + "}", 4), HasSubstr("'x'"));
  const std::string gap = R"("y":{"dtype":"F32","shape":[1],"data_offsets":[12,16]})";
  EXPECT_THAT(refusal("{" + x + "," + gap + "}", 16), HasSubstr("'y' begins at byte 12, expected 8"));
  const std::string overlap = R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})";
  EXPECT_THAT(refusal("{" + x + "," + overlap + "}", 12), HasSubstr("'y' begins at byte 4, expected 8"));
  const std::vector<std::string> altered = {
      R"({"x":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})",
      R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
      R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
      R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
      R"({"x":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}})",
      R"({"x":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})",
      R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
      R"({"x":{"dtype":"F32","shape":[2]}})",
      R"({"x":[]})",
      R"([1, 2])",
      R"({"x":)",
      "",
      std::string(100'000, '['),
  };
  for (const std::string& header : altered) {
    const testing::LargestAllocation largest;
    EXPECT_THAT(refusal(header, 8), HasSubstr("x.safetensors")) << header.substr(0, 80);
    EXPECT_LT(largest.bytes(), 4u << 20);
  }
  folder.write("x.safetensors", std::string(8, '\x7f') + "{}");  // a header of 9e18 bytes
  EXPECT_THAT(error_of<CheckpointError>([&] { SafetensorsFile file(folder / "x.safetensors"); }),
              HasSubstr("the header is torn"));
}

}  // namespace
}  // namespace deepspeed::checkpoint
