// Options of zero_optimization that only change how gradients and parameters travel give the same bits; each
// of them is also seen to change what it is for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

Json zero_with(int stage, const Json& options = Json::object()) {
  Json section = {{"stage", stage}, {"reduce_bucket_size", 200}};
  section.merge_patch(options);
  return {{"zero_optimization", section}};
}

class Stage : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, Stage, ::testing::Values(1, 2));

TEST_P(Stage, HowTensorsTravelDoesNotChangeTheTraining) {
  const std::vector<Json> variants = {
      {{"contiguous_gradients", false}}, {{"contiguous_gradients", false}, {"overlap_comm", true}},
      {{"reduce_scatter", false}},       {{"use_multi_rank_bucket_allreduce", false}},
      {{"allgather_partitions", false}}, {{"allgather_bucket_size", 50}},
      {{"reduce_bucket_size", 1}},       {{"reduce_bucket_size", 1000000}, {"overlap_comm", true}},
  };
  for (const int world : {2, 3}) {
    for (const int64_t accumulation : {1, 2}) {
      const TrainingSpec plain{
          .world_size = world, .accumulation = accumulation, .config = zero_with(GetParam())};
      const TrainingResult reference = run_training(plain);
      ASSERT_FALSE(reference.weights.empty());
      for (const Json& variant : variants) {
        TrainingSpec spec = plain;
        spec.config = zero_with(GetParam(), variant);
        EXPECT_EQ(run_training(spec).weights, reference.weights) << variant << " world " << world;
      }
    }
  }
}

TEST(UnusedParameters, AreNamedIfTheyAreNotIgnored) {
  for (const int stage : {0, 1, 2}) {
    for (const bool ignore : {true, false}) {
      run_ranks(2, [&](comm::World& world) {
        auto model = std::make_shared<OddNet>();
        Json config = zero_with(stage, {{"ignore_unused_parameters", ignore}});
        config.merge_patch({{"train_micro_batch_size_per_gpu", 4},
                            {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}});
        auto [engine, optimizer, loader, scheduler] = initialize(model, {.config = config, .world = world});
        const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
        const at::Tensor loss = engine->forward(inputs, targets);
        if (ignore) {
          engine->backward(loss);
          return;
        }
        EXPECT_ERROR(UsageError, engine->backward(loss), "'unused'", "ignore_unused_parameters");
      });
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
