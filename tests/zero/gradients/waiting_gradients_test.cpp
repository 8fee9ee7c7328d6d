// Compares stage 1's gradients, which wait for the boundary's backward, with stage 0's strategy, which keeps
// gradients of all parameters in any window.
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"
#include "tests/zero/gradients/reduced.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAreArray;
using testing::floats_of;
using testing::marked_values;

ReducerCase averaging_case(bool keeps_whole) {
  ReducerCase one = reducer_cases(1).front();
  one.options.averaging = Averaging::mean(2);
  one.keeps_whole = keeps_whole;
  return one;
}

// Runs one backward per boundary flag, with gradients that rounding changes.
void run_window(const Reduced& reduced, const std::vector<bool>& boundaries) {
  double factor = 1.0 / 3;
  for (const bool boundary : boundaries) {
    reduced.reducer->set_boundary(boundary);
    reduced.backward(factor, /*without=*/boundary ? kReducedShapes.size() : 2);
    factor *= 1.7;
  }
  reduced.reducer->complete_window();
}

TEST(WaitingGradients, GiveTheBitsOfStage0WhateverABackwardIsFollowedBy) {
  testing::run_ranks(2, [](comm::World& world) {
    const Reduced reduced(averaging_case(false), world.group()), whole(averaging_case(true), world.group());
    // Windows of one and of several backwards alternate. The second one allocates the waiting memory.
    const std::vector<std::vector<bool>> windows = {{true},  {false, true},        {true},
                                                    {false}, {false, false, true}, {true, false, true},
                                                    {true},  {true, false},        {false, true, false}};
    for (size_t index = 0; index < windows.size(); ++index) {
      run_window(reduced, windows[index]);
      run_window(whole, windows[index]);
      EXPECT_TRUE(at::equal(reduced.reducer->gradient(0), whole.reducer->gradient(0))) << "window " << index;
      EXPECT_TRUE(reduced.reducer->has_result()) << "window " << index;
      reduced.reducer->clear();
      whole.reducer->clear();
    }
  });
}

TEST(WaitingGradients, AddUpBackwardsAtTheBoundaryAsStage2Does) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {1, 2}) {
      const Reduced reduced(reducer_cases(stage).front(), world.group());
      reduced.backward();
      reduced.backward(2.0);
      EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3 * 3))) << stage;
    }
  });
}

TEST(WaitingGradients, TakeMemoryFromTheFirstBackwardThatDoesNotReduce) {
  testing::run_ranks(2, [](comm::World& world) {
    const Reduced reduced(reducer_cases(1).front(), world.group());
    const FlatLayout& layout = reduced.store->groups().front().layout;
    const int64_t all = 4 * layout.padded_numel();
    EXPECT_EQ(reduced.reducer->bytes(), 4 * layout.partition_numel());
    reduced.backward();
    reduced.reducer->clear();
    EXPECT_EQ(reduced.reducer->bytes(), 4 * layout.partition_numel());
    reduced.reducer->set_boundary(false);
    reduced.backward();
    EXPECT_EQ(reduced.reducer->bytes(), all);
    reduced.reducer->clear();
    EXPECT_EQ(reduced.reducer->bytes(), all);

    ReducerCase one = reducer_cases(1).front();
    one.options.expects_accumulation = true;
    EXPECT_EQ(Reduced(one, world.group()).reducer->bytes(), all);
  });
}

TEST(WaitingGradients, AreThisRanksOwnUntilTheyAreReduced) {
  testing::run_ranks(2, [](comm::World& world) {
    const Reduced reduced(reducer_cases(1).front(), world.group());
    EXPECT_FALSE(reduced.reducer->local_gradient(0, 1).defined());
    reduced.reducer->set_boundary(false);
    reduced.backward();
    const at::Tensor own = reduced.reducer->local_gradient(0, 1);
    ASSERT_TRUE(own.defined());
    EXPECT_EQ(own.sizes(), at::IntArrayRef(kReducedShapes[1]));
    EXPECT_THAT(floats_of(own),
                ElementsAreArray(floats_of(marked_values(kReducedShapes, 1, reduced.rank + 1))));
    reduced.reducer->complete_window();
    EXPECT_FALSE(reduced.reducer->local_gradient(0, 1).defined());
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
  });
}

TEST(WaitingGradients, OfABackwardThatBeganBeforeTheBoundaryWasSetAreReducedWithIt) {
  testing::run_ranks(2, [](comm::World& world) {
    const Reduced reduced(reducer_cases(1).front(), world.group());
    for (const bool begins_at_boundary : {false, true}) {
      reduced.reducer->set_boundary(begins_at_boundary);
      for (size_t param = 0; param < kReducedShapes.size(); ++param) {
        if (param == 2) reduced.reducer->set_boundary(!begins_at_boundary);
        reduced.give(param, reduced.rank + 1);
      }
      reduced.reducer->finish_backward();
      reduced.reducer->complete_window();
      EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3))) << begins_at_boundary;
      reduced.reducer->clear();
    }
  });
}

TEST(WaitingGradients, ThatAreGivenUpLeaveNothing) {
  testing::run_ranks(2, [](comm::World& world) {
    const Reduced reduced(reducer_cases(1).front(), world.group());
    reduced.reducer->set_boundary(false);
    reduced.backward();
    reduced.give(0, 5.0);  // a backward that is not finished
    reduced.reducer->clear();
    EXPECT_FALSE(reduced.reducer->sums(0).defined());
    reduced.reducer->set_boundary(true);
    reduced.backward();
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
  });
}

}  // namespace
}  // namespace deepspeed::zero
