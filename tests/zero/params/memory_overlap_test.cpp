#include "deepspeed/zero/params/memory_overlap.h"

#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/zero/params/shard_store.h"

#include "tests/support/error_of.h"
#include "tests/zero/params/sharded_model.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

TEST(MemoryOverlap, NamesBothParametersThatShareElements) {
  const at::Tensor memory = at::zeros({12});
  const std::vector<NamedTensor> params = {{"low", memory.narrow(0, 0, 4)}, {"high", memory.narrow(0, 8, 4)}};
  MemoryOverlap overlap;
  for (const NamedTensor& param : params) overlap.add(param);
  const auto refused = [&](int64_t begin, int64_t numel, const std::string& other) {
    const NamedTensor meeting{"meeting", memory.narrow(0, begin, numel)};
    EXPECT_ERROR(UsageError, overlap.add(meeting), "parameters '" + other + "' and 'meeting' share memory",
                 "register one tensor in both places");
  };
  refused(3, 2, "low");    // its last element
  refused(1, 2, "low");    // inside it
  refused(7, 2, "high");   // its first element
  refused(11, 1, "high");  // its last element
  refused(5, 7, "high");   // around it
  const NamedTensor between{"between", memory.narrow(0, 4, 4)};
  overlap.add(between);  // it touches both and shares nothing
  refused(7, 1, "between");
}

TEST(MemoryOverlap, LetsBlocksOfColumnsLieBetweenEachOther) {
  const at::Tensor memory = at::zeros({4, 6});
  const std::vector<NamedTensor> blocks = {{"left", memory.narrow(1, 0, 3)},
                                           {"right", memory.narrow(1, 3, 3)}};
  MemoryOverlap overlap;
  for (const NamedTensor& block : blocks) overlap.add(block);
  const NamedTensor row{"row", memory[1]};  // dense, and inside the range of the blocks
  EXPECT_ERROR(UsageError, overlap.add(row), "parameters 'left' and 'row'");
}

TEST(MemoryOverlap, SeesNoneIfThereIsNoMemory) {
  const at::Tensor memory = at::zeros({4});
  const std::vector<NamedTensor> params = {{"whole", memory},
                                           {"empty", memory.narrow(0, 2, 0)},
                                           {"meta", at::empty({4}, at::TensorOptions().device(at::kMeta))},
                                           {"undefined", at::Tensor()}};
  MemoryOverlap overlap;
  for (const NamedTensor& param : params) overlap.add(param);
  for (size_t index = 1; index < params.size(); ++index) overlap.check("buffer", params[index]);
}

TEST(MemoryOverlap, NamesABufferThatLooksIntoAParameter) {
  const at::Tensor memory = at::zeros({3, 4});
  const NamedTensor weight{"weight", memory};
  MemoryOverlap overlap;
  overlap.add(weight);
  const NamedTensor view{"row_of_weight", memory[1]}, apart{"mask", at::zeros({4})};
  EXPECT_ERROR(UsageError, overlap.check("buffer", view),
               "buffer 'row_of_weight' shares the memory of parameter 'weight'", "or copy it");
  overlap.check("buffer", apart);
}

TEST(MemoryOverlap, KnowsPartitionedParametersByWhatTheyShare) {
  const NamedTensors params = testing::marked_params({{4}, {4}});
  const ShardStore store({params}, {}, ZeroGroups(comm::make_fake_world(2).group()),
                         testing::nothing_persistent());
  MemoryOverlap overlap;
  for (const NamedTensor& param : params) overlap.add(param);  // both storages are empty, but not the same
  const NamedTensor view{"view", params[1].tensor.detach()};
  EXPECT_ERROR(UsageError, overlap.add(view), "parameters 'p1' and 'view' share memory");
}

}  // namespace
}  // namespace deepspeed::zero
