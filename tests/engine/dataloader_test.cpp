#include "deepspeed/engine/dataloader.h"

#include <set>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

struct Pair {
  at::Tensor value;   // ()
  at::Tensor square;  // (1)
};

struct Squares {
  int64_t count = 10;
  size_t size() const { return static_cast<size_t>(count); }
  Pair get(size_t index) const {
    const double x = static_cast<double>(index);
    return {at::full({}, x), at::full({1}, x * x)};
  }
};

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

using Loader = DeepSpeedDataLoader<Squares>;

std::vector<std::vector<double>> epoch(Loader& loader) {
  std::vector<std::vector<double>> batches;
  for (auto& batch : loader) batches.push_back(values(batch.value));
  return batches;
}

TEST(DataLoader, StacksEveryTensorOfTheExample) {
  Loader loader({}, {.batch_size = 4, .shuffle = false});
  auto first = loader.begin();
  EXPECT_EQ(first->value.sizes(), (at::IntArrayRef{4}));
  EXPECT_EQ(first->square.sizes(), (at::IntArrayRef{4, 1}));
  EXPECT_EQ(values(first->square), (std::vector<double>{0, 1, 4, 9}));
}

TEST(DataLoader, EndsWithItsDataAndShufflesEachEpochAnew) {
  Loader loader({}, {.batch_size = 4, .seed = 3});
  EXPECT_EQ(loader.size(), 3);
  const auto one = epoch(loader);
  const auto two = epoch(loader);
  ASSERT_EQ(one.size(), 3U);
  EXPECT_EQ(one[2].size(), 2U);
  EXPECT_NE(one, two);
  std::multiset<double> seen;
  for (const auto& batch : one) seen.insert(batch.begin(), batch.end());
  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(*seen.rbegin(), 9.0);
  Loader again({}, {.batch_size = 4, .seed = 3});
  EXPECT_EQ(epoch(again), one);
}

TEST(DataLoader, RanksShareAGlobalBatchWhateverTheirNumber) {
  const auto global_batch = [](int world, int64_t micro) {
    std::multiset<double> samples;
    for (int rank = 0; rank < world; ++rank) {
      Loader loader({24}, {.batch_size = micro, .rank = rank, .world_size = world, .seed = 5});
      for (const double value : values(loader.begin()->value)) samples.insert(value);
    }
    return samples;
  };
  EXPECT_EQ(global_batch(1, 12), global_batch(2, 6));
  EXPECT_EQ(global_batch(1, 12), global_batch(3, 4));
}

TEST(DataLoader, DropLastDropsASmallerBatch) {
  Loader loader({}, {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(epoch(loader).size(), 2U);
  EXPECT_THROW(Loader({3}, {.batch_size = 4, .drop_last = true}), UsageError);
}

TEST(DataLoader, GoesOnInTheMiddleOfAnEpochFromARestoredPosition) {
  Loader straight({}, {.batch_size = 2, .seed = 9});
  std::vector<std::vector<double>> expected = epoch(straight);
  const auto next_epoch = epoch(straight);
  expected.insert(expected.end(), next_epoch.begin(), next_epoch.end());

  Loader first({}, {.batch_size = 2, .seed = 9});
  std::vector<std::vector<double>> got;
  LoaderPosition saved;
  for (auto& batch : first) {
    got.push_back(values(batch.value));
    if (got.size() == 3) {
      saved = *first.position();
      break;
    }
  }
  Loader second({}, {.batch_size = 2, .seed = 1234});
  saved.resume = !saved.epoch_ended;
  *second.position() = saved;
  for (int pass = 0; pass < 2; ++pass) {
    const auto rest = epoch(second);
    got.insert(got.end(), rest.begin(), rest.end());
  }
  EXPECT_EQ(got, expected);
}

TEST(RepeatingLoader, StartsAgainWhenTheDataEnds) {
  auto loader = std::make_shared<Loader>(Squares{3}, DataLoaderOptions{.batch_size = 2});
  RepeatingLoader repeating(loader);
  std::vector<int64_t> sizes;
  for (int i = 0; i < 5; ++i) sizes.push_back(repeating.next().value.numel());
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 1, 2, 1, 2}));
  EXPECT_EQ(loader->position()->epoch, 2);
}

}  // namespace
}  // namespace deepspeed
