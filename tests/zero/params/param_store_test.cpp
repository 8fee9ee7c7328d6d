// Tests parameters that cannot be trained together.
#include "deepspeed/zero/params/param_store.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/zero/params/shard_store.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

void store(std::vector<std::vector<NamedTensor>> groups, int stage = 1) {
  const ParamStore made(std::move(groups), 2, {at::kFloat, false, stage});
}

void store_shards(std::vector<std::vector<NamedTensor>> groups) {
  const comm::World world = comm::make_fake_world(2);
  const ShardStore made(std::move(groups), {}, ZeroGroups(world.group()), {});
}

NamedTensor param(const char* name, const at::TensorOptions& options = at::kFloat) {
  return {name, at::ones({3}, options)};
}

TEST(ParamStore, TakesParametersOfOneDeviceEachOnce) {
  const NamedTensor a = param("a"), b = param("b", at::device(at::kMeta));
  EXPECT_NO_THROW(store({{a}}));
  EXPECT_ERROR(UsageError, store({{a, b}}), "parameter 'b' is on meta, the others on cpu",
               "move the model to one device");
  EXPECT_ERROR(UsageError, store({{a}, {a}}), "parameter 'a' stands in the parameter groups twice");
  EXPECT_ERROR(UsageError, store({{a}, {}}), "a parameter group is empty");
  EXPECT_ERROR(UsageError, store({{a}}, 3), "stage 3 with parameters that are not partitioned", "0 to 2");
}

TEST(ParamStore, TakesDenseFloats) {
  EXPECT_ERROR(UsageError, store({{param("i", at::kInt)}}), "parameter 'i' is CPUIntType",
               "expected a dense float tensor");
  EXPECT_ERROR(UsageError, store({{param("c", at::kComplexFloat)}}), "parameter 'c' is ComplexFloat",
               "view_as_real");
  EXPECT_ERROR(UsageError, store({{param("h", at::kHalf)}}), "parameter 'h' is Half",
               "enable fp16 or bf16 in the config");
  EXPECT_ERROR(UsageError, store({{param("a"), param("d", at::kDouble)}}),
               "parameter 'd' is Double, 'a' of the same group Float", "give each type a group of its own");
}

TEST(ParamStore, TellsWhatWasWrittenInPlace) {
  std::vector<NamedTensor> params{param("a"), param("b"), param("c")};
  ParamStore store({params}, 2, {at::kBFloat16, false, 1});
  EXPECT_TRUE(store.take_externally_written(0).empty());
  params[1].tensor.detach().fill_(2);
  store.groups()[0].flat.narrow(0, 0, 3).fill_(5);  // as an optimizer does
  EXPECT_EQ(store.take_externally_written(0), std::vector<size_t>{1});
  EXPECT_TRUE(store.take_externally_written(0).empty());
  EXPECT_EQ(params[0].tensor[0].item<float>(), 5.0f);
}

TEST(ShardStore, TakesParametersThatHaveValuesEachOnce) {
  const NamedTensor a = param("a");
  EXPECT_ERROR(UsageError, store_shards({{param("m", at::device(at::kMeta))}}),
               "parameter 'm' is on the meta device and has no values", "zero::Init");
  EXPECT_ERROR(UsageError, store_shards({{a}, {a}}), "parameter 'a' stands in the parameter groups twice");
  EXPECT_ERROR(UsageError, store_shards({}), "there are no parameters");
}

}  // namespace
}  // namespace deepspeed::zero
