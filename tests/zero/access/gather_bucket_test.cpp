#include "deepspeed/zero/access/gather_bucket.h"

#include <random>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/interval.h"

#include "tests/support/counted_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::zero {
namespace {

/// Returns (numel) of all kinds of bits: zeros of both signs, signaling NaNs, subnormal numbers.
at::Tensor odd_values(int64_t numel, at::ScalarType dtype, int seed) {
  const at::Tensor bytes = at::empty({numel * static_cast<int64_t>(c10::elementSize(dtype))}, at::kByte);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int64_t i = 0; i < bytes.numel(); ++i) bytes.data_ptr<uint8_t>()[i] = uint8_t(random());
  const at::Tensor values = bytes.view(dtype);
  values[0].fill_(-0.0);
  return values;
}

/// Returns the gathered parameters of these sizes, one per tensor.
std::vector<at::Tensor> gathered(const comm::ProcessGroup& group, const std::vector<int64_t>& numels,
                                 at::ScalarType dtype, Fetch fetch) {
  std::vector<std::shared_ptr<Shard>> shards;
  for (const int64_t numel : numels) {
    const int64_t part = shard_numel(numel, group.size());
    shards.push_back(std::make_shared<MemoryShard>(
        odd_values(part * group.size(), dtype, int(numel)).narrow(0, group.rank() * part, part).clone()));
  }
  const device::SideStream copies(at::kCPU);
  GatherBuffers buffers;
  GatherBucket bucket(group, shards, dtype, at::kCPU, copies, buffers, fetch);
  std::vector<at::Tensor> wholes;
  for (size_t index = 0; index < shards.size(); ++index) wholes.push_back(bucket.take(index));
  return wholes;
}

TEST(GatherBucket, HasTheBitsOfTheShardsByEitherCollective) {
  for (const int ranks : {1, 2, 3, 4}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        // With 16 bits, three ranks and one element there is no whole word.
        for (const std::vector<int64_t>& numels :
             {std::vector<int64_t>{1}, {3}, {10007}, {1, 7, 30}, {2, 4096, 5}}) {
          for (const Fetch fetch : {Fetch::kAllGather, Fetch::kAllReduce}) {
            const auto wholes = gathered(world.group(), numels, dtype, fetch);
            for (size_t i = 0; i < numels.size(); ++i) {
              const int64_t padded = shard_numel(numels[i], world.size()) * world.size();
              const at::Tensor expected = odd_values(padded, dtype, int(numels[i]));
              EXPECT_TRUE(at::equal(wholes[i].view(at::kByte), expected.view(at::kByte)))
                  << dtype << " " << numels[i] << " of " << numels.size();
            }
          }
        }
      }
    });
  }
}

TEST(GatherBucket, AsksForOneCollectiveOfTheKindThatIsWanted) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const Fetch fetch : {Fetch::kAllGather, Fetch::kAllReduce}) {
      const auto notes = std::make_shared<testing::CallNotes>();
      gathered(testing::counted_world(world, notes).group(), {10, 20}, at::kFloat, fetch);
      ASSERT_EQ(notes->size(), 1U);
      EXPECT_EQ(notes->front().collective, fetch == Fetch::kAllReduce ? "all_reduce" : "all_gather");
      EXPECT_EQ(notes->front().bytes, 4 * 30);
    }
  });
}

}  // namespace
}  // namespace deepspeed::zero
