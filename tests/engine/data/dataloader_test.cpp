#include "deepspeed/engine/data/dataloader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

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

TEST(DataLoader, HandsBatchesOutOnItsDevice) {
  Loader loader({}, {.batch_size = 4, .device = at::kMeta, .num_local_io_workers = 2});
  for (const auto& batch : loader) {
    EXPECT_TRUE(batch.value.is_meta());
    EXPECT_TRUE(batch.square.is_meta());
  }
}

TEST(DataLoader, EndsWithItsDataAndReshufflesEachEpoch) {
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

TEST(DataLoader, SharesAGlobalBatchAmongAnyNumberOfRanks) {
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
  EXPECT_ERROR(UsageError, Loader({3}, {.batch_size = 4, .drop_last = true}),
               "a data set of 3 samples gives no batch of 4 on 1 ranks with drop_last");
}

TEST(DataLoader, ContinuesInsideAnEpochFromARestoredPosition) {
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

TEST(DataLoader, LetsACollateFunctionMakeBatchesOfItsOwnType) {
  struct Sum {
    double value = 0.0;
    size_t count = 0;
  };
  const auto add_up = [](const std::vector<Pair>& examples) {
    Sum sum;
    for (const Pair& example : examples) sum.value += example.value.item<double>();
    sum.count = examples.size();
    return sum;
  };
  for (const int workers : {0, 3}) {
    DeepSpeedDataLoader loader(Squares{},
                               {.batch_size = 4, .shuffle = false, .num_local_io_workers = workers}, add_up);
    std::vector<double> sums;
    size_t count = 0;
    for (const Sum& sum : loader) {
      sums.push_back(sum.value);
      count += sum.count;
    }
    EXPECT_EQ(sums, (std::vector<double>{6, 22, 17}));
    EXPECT_EQ(count, 10U);
  }
}

TEST(DataLoader, GivesACollateFunctionTheBatchOfADataSetWithoutExamples) {
  struct Batches {
    size_t size() const { return 6; }
    std::vector<size_t> get_batch(const std::vector<size_t>& indices) const { return indices; }
  };
  DeepSpeedDataLoader plain(Batches{}, {.batch_size = 3, .shuffle = false});
  EXPECT_EQ(*plain.begin(), (std::vector<size_t>{0, 1, 2}));
  DeepSpeedDataLoader loader(Batches{}, {.batch_size = 3, .shuffle = false},
                             [](std::vector<size_t> batch) { return batch.size(); });
  EXPECT_EQ(*loader.begin(), 3U);
}

/// Takes the longer, the smaller the index, so that threads finish in another order.
struct SlowSquares : Squares {
  Pair get(size_t index) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 - index));
    return Squares::get(index);
  }
};

TEST(DataLoader, GivesTheSameBatchesInTheSameOrderWithWorkers) {
  for (const int workers : {1, 4}) {
    Loader alone({}, {.batch_size = 3, .seed = 5});
    DeepSpeedDataLoader<SlowSquares> loader({},
                                            {.batch_size = 3, .seed = 5, .num_local_io_workers = workers});
    for (int number = 0; number < 3; ++number) {
      std::vector<std::vector<double>> batches;
      for (auto& batch : loader) batches.push_back(values(batch.value));
      EXPECT_EQ(batches, epoch(alone)) << "epoch " << number;
    }
  }
}

TEST(DataLoader, ForgetsWhatWorkersHaveMadeIfAnEpochStartsAgain) {
  Loader alone({}, {.batch_size = 3, .seed = 5});
  Loader loader({}, {.batch_size = 3, .seed = 5, .num_local_io_workers = 2});
  (void)loader.begin();
  (void)alone.begin();
  EXPECT_EQ(epoch(loader), epoch(alone));
}

TEST(DataLoader, WorkersResumeWhereTheBatchesInUseStood) {
  Loader loader({}, {.batch_size = 2, .seed = 5, .num_local_io_workers = 3});
  auto iterator = loader.begin();
  ++iterator;
  const LoaderPosition saved = *loader.position();
  EXPECT_EQ(saved.samples_consumed, 4);  // whatever was made ahead
  std::vector<std::vector<double>> rest;
  for (++iterator; iterator != loader.end(); ++iterator) rest.push_back(values(iterator->value));
  ASSERT_EQ(rest.size(), 3U);

  Loader resumed({}, {.batch_size = 2, .seed = 5, .num_local_io_workers = 3});
  auto started = resumed.begin();  // a checkpoint that is loaded in the middle of an epoch counts
  *resumed.position() = saved;
  resumed.position()->resume = true;
  EXPECT_EQ(epoch(resumed), rest);
}

TEST(DataLoader, PassesOnADataSetsErrorAndKeepsTheBatch) {
  struct Failing : Squares {
    std::shared_ptr<std::atomic<bool>> fails = std::make_shared<std::atomic<bool>>(true);
    Pair get(size_t index) const {
      if (index == 5 && *fails) raise<IoError>("sample 5 cannot be read");
      return Squares::get(index);
    }
  };
  for (const int workers : {0, 2}) {
    const Failing data;
    DeepSpeedDataLoader loader(data, {.batch_size = 4, .shuffle = false, .num_local_io_workers = workers});
    auto iterator = loader.begin();
    EXPECT_ERROR(IoError, ++iterator, "sample 5 cannot be read");
    *data.fails = false;
    ++iterator;
    EXPECT_EQ(values(iterator->value), (std::vector<double>{4, 5, 6, 7})) << workers;
  }
}

TEST(DataLoader, TakesTheSamplesOfEachEpochFromASampler) {
  const auto evens = [](int64_t epoch) {
    std::vector<int64_t> indices = {0, 2, 4, 6};
    if (epoch % 2 == 1) std::reverse(indices.begin(), indices.end());
    return indices;
  };
  Loader loader({}, {.batch_size = 2, .data_sampler = evens});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(epoch(loader), (std::vector<std::vector<double>>{{0, 2}, {4, 6}}));
  EXPECT_EQ(epoch(loader), (std::vector<std::vector<double>>{{6, 4}, {2, 0}}));
  Loader wrong({}, {.batch_size = 2, .data_sampler = [](int64_t) { return std::vector<int64_t>{10}; }});
  EXPECT_ERROR(UsageError, wrong.begin(), "data_sampler gives sample 10, expected 0 to 9");
  EXPECT_ERROR(UsageError, Loader({}, {.num_local_io_workers = -1}),
               "num_local_io_workers is -1, expected 0 or more");
}

TEST(RepeatingLoader, RefusesAnEpochWithoutABatch) {
  const auto empties = [](int64_t epoch) {
    return epoch == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{};
  };
  auto loader =
      std::make_shared<Loader>(Squares{}, DataLoaderOptions{.batch_size = 2, .data_sampler = empties});
  RepeatingLoader repeating(loader);
  EXPECT_EQ(values(repeating.next().value), (std::vector<double>{1, 2}));
  EXPECT_ERROR(UsageError, repeating.next(), "0 samples in epoch 1");
  const auto shorter = [](int64_t epoch) { return std::vector<int64_t>(epoch == 0 ? 2 : 1, 3); };
  Loader dropping({}, {.batch_size = 2, .drop_last = true, .data_sampler = shorter});
  EXPECT_EQ(epoch(dropping).size(), 1U);
  EXPECT_ERROR(UsageError, epoch(dropping), "data_sampler gives 1 samples in epoch 1", "expected at least 2");
}

TEST(DataLoader, StartsAgainWithWorkersInARepeatingLoader) {
  const auto loader = std::make_shared<Loader>(
      Squares{}, DataLoaderOptions{.batch_size = 5, .shuffle = false, .num_local_io_workers = 2});
  RepeatingLoader repeating(loader);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(values(repeating.next().value), (std::vector<double>{0, 1, 2, 3, 4}));
    EXPECT_EQ(values(repeating.next().value), (std::vector<double>{5, 6, 7, 8, 9}));
  }
}

}  // namespace
}  // namespace deepspeed
