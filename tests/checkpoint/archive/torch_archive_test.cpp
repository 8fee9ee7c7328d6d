#include "deepspeed/checkpoint/archive/torch_archive.h"

#include <cstdint>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/checkpoint/pickle/value_comparison.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

Value write_and_read(const Value& value, const ReadOptions& options = {}) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", value);
  return read_torch_archive(folder / "file.pt", options);
}

uint64_t written_bytes(const Value& value) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", value);
  return std::filesystem::file_size(folder / "file.pt");
}

TEST(TorchArchive, KeepsEveryKindOfPlainValue) {
  Dict ordered(/*ordered=*/true);
  ordered.set("b", 1);
  ordered.set("a", 2);
  const auto state = std::make_shared<Value>(Dict{{"cur_scale", 65536.0}, {"dtype", DType{at::kHalf}}});
  const Value value = Dict{
      {"none", None{}},
      {"flags", List{true, false}},
      {"integers", List{0, 255, 256, 65535, 65536, -1, std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<int64_t>::max()}},
      {"floats", List{0.1, -0.0, 1e300, std::numeric_limits<double>::infinity()}},
      {"text", "äöü €"},
      {"bytes", Value::bytes({0, 127, 128, 255})},
      {"tuples", List{Tuple{}, Tuple{{1}}, Tuple{{1, 2}}, Tuple{{1, 2, 3}}, Tuple{{1, 2, 3, 4}}}},
      {"set", Set{{"x", "y"}}},
      {"ordered", ordered},
      {"by number", Dict{{0, "zero"}, {1, "one"}}},
      {"size", Size{{3, 4, 5, 6}}},
      {"dtype", DType{at::kBFloat16}},
      {"scaler",
       Object{"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler", {}, state, Object::Making::kNew}},
      {"stage", Object{"deepspeed.runtime.zero.config", "ZeroStageEnum", {2}, nullptr}},
      {"nested", Dict{{"list", List{List{}, Dict{}, List{Dict{{"deep", 1}}}}}}},
  };
  EXPECT_TRUE(same(write_and_read(value), value));
}

TEST(TorchArchive, KeepsTensorsOfEveryDtypeAndShape) {
  List tensors;
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                          at::kChar, at::kByte, at::kBool, at::kUInt16}) {
    tensors.push_back(at::arange(6, at::kFloat).view({2, 3}).to(type));
  }
  tensors.push_back(at::scalar_tensor(2.5));
  tensors.push_back(at::empty({0, 3}));
  EXPECT_TRUE(same(write_and_read(tensors), tensors));
}

TEST(TorchArchive, TensorsOfOneStorageShareItAgain) {
  const at::Tensor weight = at::arange(12, at::kFloat).view({3, 4});
  const Value result = write_and_read(Dict{{"wte", weight}, {"lm_head", weight.t()}, {"row", weight[1]}});
  const at::Tensor& wte = result.as_dict().at("wte").as_tensor();
  const at::Tensor& row = result.as_dict().at("row").as_tensor();
  EXPECT_TRUE(at::equal(result.as_dict().at("lm_head").as_tensor(), weight.t()));
  EXPECT_TRUE(at::equal(row, weight[1]));
  EXPECT_EQ(wte.storage().data(), result.as_dict().at("lm_head").as_tensor().storage().data());
  EXPECT_EQ(wte.storage().data(), row.storage().data());
}

TEST(TorchArchive, AViewIsWrittenWithoutTheRestOfItsStorage) {
  const at::Tensor flat = at::arange(1 << 20, at::kFloat);
  const Value value = List{flat.narrow(0, 16, 8), flat.narrow(0, 24, 8), flat.slice(0, 1000, 900000, 200000)};
  EXPECT_LT(written_bytes(value), 8192u);
  const Value result = write_and_read(value);
  EXPECT_TRUE(same(result, value));
  // Neighbours in a flat buffer get separate records.
  EXPECT_EQ(result.as_sequence()[0].as_tensor().storage().nbytes(), 32u);
}

TEST(TorchArchive, ExpandedAndStridedTensorsKeepTheirElements) {
  const at::Tensor base = at::arange(24, at::kFloat).view({2, 3, 4});
  const Value value = List{at::ones({1, 3}).expand({1000, 3}), base.permute({2, 0, 1}), base.select(2, 1)};
  EXPECT_TRUE(same(write_and_read(value), value));
}

TEST(TorchArchive, GivesShapesWithoutDataOnTheMetaDevice) {
  const Value result = write_and_read(List{at::ones({3, 5}, at::kBFloat16)}, {.tensor_data = false});
  const at::Tensor& tensor = result.as_sequence()[0].as_tensor();
  EXPECT_TRUE(tensor.is_meta());
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
}

TEST(TorchArchive, ReplacesAFileAndLeavesNoTemporaryOne) {
  const testing::TemporaryFolder folder;
  write_torch_archive(folder / "file.pt", "first");
  write_torch_archive(folder / "file.pt", "second");
  EXPECT_EQ(read_torch_archive(folder / "file.pt").as_string(), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TorchArchive, ErrorsNameTheFile) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT([&] { read_torch_archive(folder / "absent.pt"); },
              ::testing::ThrowsMessage<IoError>(::testing::HasSubstr("absent.pt")));
  EXPECT_THAT([&] { write_torch_archive(folder / "no_folder/file.pt", 1); },
              ::testing::ThrowsMessage<IoError>(::testing::HasSubstr("no_folder/file.pt")));
}

TEST(TorchArchive, KeepsSurrogatesThatStandAloneAsPythonDoes) {
  const std::string text = "a\xed\xb2\x80z\xed\xa0\xbd";
  EXPECT_EQ(write_and_read(text).as_string(), text);
}

TEST(TorchArchive, RefusesToWriteWhatNoReaderCouldRead) {
  EXPECT_ERROR(UsageError, written_bytes(std::string("\xff\xfe")), "not UTF-8", "use Value::bytes");
  EXPECT_ERROR(UsageError,
               written_bytes(Dict{{"args", List{Dict{{"name", std::string("\xc3\xed\xa0\x80\xa9")}}}}}),
               "under the key 'args.name' is not UTF-8");
  EXPECT_ERROR(UsageError, written_bytes(at::empty({2}, at::TensorOptions().device(at::kMeta))),
               "a tensor on the meta device has no data to save", "give it values first");
  EXPECT_ERROR(UsageError, written_bytes(at::Tensor()), "an undefined tensor cannot be saved");
  EXPECT_ERROR(UsageError, written_bytes(at::ones({2}).to_sparse()), "only dense tensors can be saved",
               "to_dense()");
  Value deep;
  for (int level = 0; level < 300; ++level) deep = List{deep};
  EXPECT_ERROR(UsageError, written_bytes(deep), "nested deeper than 200 levels");
}

}  // namespace
}  // namespace deepspeed::checkpoint
