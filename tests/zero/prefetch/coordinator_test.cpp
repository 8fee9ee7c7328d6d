#include "deepspeed/zero/prefetch/coordinator.h"

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/param_access.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using testing::Mlp;

int64_t num_partitioned(const ShardStore& store) {
  int64_t count = 0;
  for (const auto& storage : store.storages(0))
    count += storage->state() == PartitionedStorage::State::kPartitioned ? 1 : 0;
  return count;
}

ShardStore::Options with_distances(int64_t prefetch_numel, int64_t max_reuse_distance) {
  auto options = testing::nothing_persistent();
  options.pool.keys.stage3_prefetch_bucket_size = prefetch_numel;
  options.pool.keys.stage3_max_reuse_distance = max_reuse_distance;
  return options;
}

at::Tensor rows_of(int64_t width) { return at::arange(3 * width, at::kFloat).cos_().view({3, width}); }

TEST(Coordinator, GathersAheadFromTheSecondPassOn) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    Mlp model(8, 3);  // 64 and three times 8 elements per layer
    const ShardStore store = testing::shard(model, world.group(), with_distances(2 * 64 + 4 * 8, 1000));
    for (const int pass : {1, 2, 3}) {
      const ParameterAccess access(store.pool(), AccessMode::kTraining);
      EXPECT_EQ(num_partitioned(store), 12);
      model.linear(0)->weight.sum();
      // Its own bias, itself again, its norm, and the next layer's weight and bias.
      EXPECT_EQ(num_partitioned(store), pass == 1 ? 11 : 12 - 1 - 5);
      model.forward(rows_of(8));
    }
  });
}

TEST(Coordinator, GathersWhatComesNextAheadHoweverLargeItIs) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    for (const int64_t prefetch_numel : {0, 1}) {
      Mlp model(8, 3);
      const ShardStore store = testing::shard(model, world.group(), with_distances(prefetch_numel, 1000));
      for (const int pass : {1, 2}) {
        const ParameterAccess access(store.pool(), AccessMode::kTraining);
        model.linear(0)->weight.sum();
        EXPECT_EQ(num_partitioned(store),
                  pass == 2 && prefetch_numel > 0 ? 10 : 11);  // its bias has 8 elements
        model.forward(rows_of(8));
      }
    }
  });
}

TEST(Coordinator, GathersOneParameterAheadWhereTheyComeOneAfterTheOther) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    Mlp model(8, 3);
    auto options = with_distances(1000, 1000);
    options.pool.keys.stage3_allgather_sequential = true;
    const ShardStore store = testing::shard(model, world.group(), options);
    const auto state_of = [&](size_t param) { return store.storages(0)[param]->state(); };
    for (const int pass : {1, 2}) {
      const ParameterAccess access(store.pool(), AccessMode::kTraining);
      model.linear(0)->weight.sum();
      EXPECT_EQ(num_partitioned(store), pass == 1 ? 11 : 10);
      if (pass == 2) {
        EXPECT_EQ(state_of(1), PartitionedStorage::State::kGathering);
      }
      model.linear(0)->bias.sum();  // this one was gathered ahead, and the next one is now
      EXPECT_EQ(num_partitioned(store), pass == 1 ? 10 : 9);
      EXPECT_EQ(state_of(1), PartitionedStorage::State::kWhole);
      model.forward(rows_of(8));
    }
  });
}

TEST(Coordinator, LetsGoOfWhatIsNotUsedAgainSoon) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    // Between the two uses of the first weight there are 64 elements, not counting the parameter in use.
    const auto live_in_second_pass = [&](int64_t max_reuse_distance) {
      Mlp model(8, 3);
      const ShardStore store = testing::shard(model, world.group(), with_distances(0, max_reuse_distance));
      std::vector<int64_t> live;
      for (const int pass : {1, 2}) {
        const ParameterAccess access(store.pool(), AccessMode::kEvaluation);
        live.clear();
        for (const size_t layer : {0, 1, 2, 0}) {
          model.linear(layer)->weight.sum();
          live.push_back(store.pool()->live_numel());
        }
        // Without a trace all stay whole, as long as there is room.
        if (pass == 1) {
          EXPECT_EQ(live, (std::vector<int64_t>{64, 128, 192, 192}));
        }
      }
      return live;
    };
    EXPECT_EQ(live_in_second_pass(63), (std::vector<int64_t>{64, 64, 64, 64}));
    EXPECT_EQ(live_in_second_pass(64), (std::vector<int64_t>{64, 128, 128, 64}));
  });
}

TEST(Coordinator, KeepsForTheBackwardWhatItUsesSoonInFp32) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    const auto live_between = [&](int64_t max_reuse_distance, at::ScalarType dtype) {
      Mlp model(8, 3);
      ShardStore::Options options = with_distances(0, max_reuse_distance);
      options.dtype = dtype;
      const ShardStore store = testing::shard(model, world.group(), options);
      int64_t between = 0;
      for (const int step : {1, 2}) {
        const auto pass = [&](AccessMode mode, const std::vector<size_t>& layers) {
          const ParameterAccess access(store.pool(), mode);
          for (const size_t layer : layers) model.linear(layer)->weight.sum();
        };
        pass(AccessMode::kForward, {0, 1, 2});
        between = store.pool()->live_numel();
        if (step == 1) {
          EXPECT_EQ(between, 0) << "nobody knows yet what a backward uses";
        }
        pass(AccessMode::kBackward, {2, 1, 0});
        EXPECT_EQ(store.pool()->live_numel(), 0);
      }
      return between;
    };
    EXPECT_EQ(live_between(1000, at::kFloat), 192);
    EXPECT_EQ(live_between(128, at::kFloat), 128);
    EXPECT_EQ(live_between(0, at::kFloat), 64);
    EXPECT_EQ(live_between(1000, at::kBFloat16), 0);
  });
}

TEST(Coordinator, KeepsPassesOfDifferentKindsApart) {
  testing::run_ranks(2, [](comm::World& world) {
    const c10::NoGradGuard no_grad;
    Mlp model(8, 3);
    const ShardStore store = testing::shard(model, world.group(), with_distances(64, 1000));
    const auto use = [&](AccessMode mode, std::vector<size_t> layers) {
      const ParameterAccess access(store.pool(), mode);
      model.linear(layers[0])->weight.sum();
      const int64_t ahead = 12 - 1 - num_partitioned(store);  // without the one just used
      for (const size_t layer : layers) model.linear(layer)->weight.sum();
      return ahead;
    };
    EXPECT_EQ(use(AccessMode::kTraining, {0, 1, 2}), 0);
    EXPECT_EQ(use(AccessMode::kEvaluation, {2, 0}), 0);
    EXPECT_EQ(use(AccessMode::kTraining, {0, 1, 2}), 1);
    EXPECT_EQ(use(AccessMode::kEvaluation, {2, 0}), 1);
    EXPECT_EQ(use(AccessMode::kAny, {0, 1, 2}), 0);
    EXPECT_EQ(use(AccessMode::kTraining, {1, 2}), 0);  // another order
    EXPECT_EQ(use(AccessMode::kTraining, {1, 2}), 1);
  });
}

TEST(Coordinator, ChangesNoResultWhateverItsLimits) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t prefetch : {0, 100, 100000}) {
        for (const int64_t distance : {0, 300, 100000}) {
          Mlp model(9, 4);
          testing::fill_parameters(model, 0.3);
          std::vector<at::Tensor> expected, results;
          const auto run = [&](std::vector<at::Tensor>& into) {
            for (const bool other_way : {false, false, true, false}) {
              const ParameterAccess access(model.parameters(), AccessMode::kTraining);
              model.zero_grad();
              at::Tensor input = rows_of(9);
              if (other_way) input = model.linear(3)->forward(input);
              const at::Tensor loss = model.forward(input);
              loss.backward();
              into.push_back(loss.detach());
              for (const auto& param : model.parameters()) into.push_back(param.grad().clone());
            }
          };
          run(expected);
          auto options = with_distances(prefetch, distance);
          options.pool.keys.stage3_max_live_parameters = distance + prefetch;
          const ShardStore store = testing::shard(model, world.group(), options);
          run(results);
          ASSERT_EQ(results.size(), expected.size());
          for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], expected[i])) << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace deepspeed::zero
