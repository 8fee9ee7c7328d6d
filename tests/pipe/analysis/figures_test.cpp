#include "deepspeed/pipe/analysis/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/schedule/make_schedule.h"

#include "tests/support/error_of.h"

namespace deepspeed::pipe {
namespace {

double simulated_bubble(const char* kind, int micro_batches, int stages, int chunks,
                        const PassCosts& costs = {}) {
  const auto pipeline = train_steps(kind, micro_batches, stages, chunks);
  return simulated_time(pipeline, costs) / ideal_time(micro_batches, costs) - 1;
}

/// Expects formula and simulation to agree for up to 16 stages and 64 micro batches.
void expect_formula(const char* kind, int chunks, const PassCosts& costs, int step) {
  for (int stages = chunks > 1 ? 2 : 1; stages <= 16; ++stages) {
    for (int micro_batches = 1; micro_batches <= 64; micro_batches += step) {
      ASSERT_NEAR(simulated_bubble(kind, micro_batches, stages, chunks, costs),
                  bubble_formula(kind, micro_batches, stages, chunks, costs), 1e-9)
          << kind << " with " << chunks << " chunks, " << stages << " stages, " << micro_batches
          << " micro batches";
    }
  }
}

TEST(Bubble, FollowsTheFormulaForPassesOfEqualLength) {
  expect_formula("1f1b", 1, {}, 1);
  expect_formula("zero_bubble", 1, {}, 1);
  expect_formula("interleaved", 2, {}, 1);
  expect_formula("interleaved", 3, {}, 5);
}

TEST(Bubble, FollowsTheFormulaForOtherLengths) {
  for (const PassCosts& costs : {PassCosts{1, 1.5, 0.5}, PassCosts{2, 1, 1}, PassCosts{1, 2, 1}}) {
    expect_formula("1f1b", 1, costs, 3);
    expect_formula("zero_bubble", 1, costs, 3);
    expect_formula("interleaved", 2, costs, 7);
  }
}

TEST(Bubble, HasTheKnownValues) {
  EXPECT_NEAR(bubble_formula("1f1b", 8, 4), 3.0 / 8, 1e-12);
  EXPECT_NEAR(bubble_formula("interleaved", 8, 4, 2), 3.0 / 16, 1e-12);
  EXPECT_NEAR(bubble_formula("zero_bubble", 8, 4), 3.0 / 24, 1e-12);
  EXPECT_NEAR(bubble_formula("1f1b", 5, 1), 0, 1e-12);
  EXPECT_NEAR(bubble_formula("zero_bubble", 5, 1), 0, 1e-12);
}

TEST(Bubble, IsNeverLargerWithZeroBubbleThanWith1F1B) {
  for (const PassCosts& costs : {PassCosts{}, PassCosts{1, 1, 3}, PassCosts{1, 3, 2}, PassCosts{3, 1, 2}}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
        ASSERT_LE(simulated_bubble("zero_bubble", micro_batches, stages, 1, costs),
                  simulated_bubble("1f1b", micro_batches, stages, 1, costs) + 1e-9)
            << stages << " stages, " << micro_batches << " micro batches, weights " << costs.backward_weight;
      }
    }
  }
}

TEST(PeakActivations, FollowTheFormulaAndFitTheBuffers) {
  struct Case {
    const char* kind;
    int chunks;
  };
  for (const auto& [kind, chunks] :
       {Case{"1f1b", 1}, Case{"zero_bubble", 1}, Case{"interleaved", 2}, Case{"interleaved", 3}}) {
    for (int stages = 2; stages <= 16; ++stages) {
      for (int micro_batches = 1; micro_batches <= 64; micro_batches += 3) {
        const auto pipeline = train_steps(kind, micro_batches, stages, chunks);
        for (int stage = 0; stage < stages; ++stage) {
          const int peak = peak_activations(pipeline.stages[stage]);
          ASSERT_EQ(peak, peak_activations_formula(kind, micro_batches, stages, stage, chunks))
              << kind << ", stage " << stage << " of " << stages << ", " << micro_batches << " micro batches";
          ASSERT_LE(peak, pipeline.num_buffers[stage]);
        }
      }
    }
  }
}

TEST(PeakActivations, EqualTheFirstStageOf1F1BWithZeroBubble) {
  EXPECT_EQ(peak_activations(train_steps("1f1b", 8, 4).stages[0]), 4);
  for (const auto& steps : train_steps("zero_bubble", 8, 4).stages) EXPECT_EQ(peak_activations(steps), 4);
}

TEST(PipelineSteps, AreBounded) {
  EXPECT_ERROR(UsageError, train_steps("1f1b", 8, 100'000), "100000 stages", "expected at most");
  EXPECT_ERROR(UsageError, train_steps("zero_bubble", 2'000'000'000, 4), "2000000000 micro batches");
  EXPECT_ERROR(UsageError, inference_steps(8, 100'000), "100000 stages");
}

TEST(MakeTrainSchedule, RefusesWhatDoesNotExistByTheKeysOfTheConfig) {
  EXPECT_ERROR(UsageError, make_train_schedule("gpipe", 4, 2, 0), "pipeline.schedule is 'gpipe'", "'1f1b'");
  EXPECT_ERROR(UsageError, make_train_schedule("1f1b", 4, 2, 0, 2), "pipeline.model_chunks is 2",
               "'interleaved'");
  EXPECT_ERROR(UsageError, make_train_schedule("interleaved", 4, 1, 0, 2), "1 stages", "'1f1b'");
  EXPECT_ERROR(UsageError, make_train_schedule("interleaved", 4, 2, 0, 1), "pipeline.model_chunks 1",
               "2 or more");
  EXPECT_ERROR(UsageError, bubble_formula("gpipe", 4, 2), "pipeline.schedule is 'gpipe'");
  EXPECT_ERROR(UsageError, train_steps("zero_bubble", 0, 2), "micro_batches is 0");
}

}  // namespace
}  // namespace deepspeed::pipe
