// Tests the two strategies without autograd. Gradients are passed as hooks would, in a different order on
// each rank.
#include "deepspeed/zero/gradients/grad_reducer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/scalar_tensor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/counted_world.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/zero/gradients/reduced.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAreArray;
using testing::floats_of;
using testing::marked_values;

void for_each_case(const std::function<void(const ReducerCase&, const comm::ProcessGroup&)>& check) {
  testing::run_ranks(2, [&](comm::World& world) {
    for (const int stage : {1, 2, 3}) {
      for (const ReducerCase& one : reducer_cases(stage)) {
        SCOPED_TRACE(one.name);
        check(one, world.group());
      }
    }
  });
}

TEST(GradReducer, KeepsThisRanksPartOfTheSumWhateverTheOrderOfGradients) {
  for_each_case([](const ReducerCase& one, const comm::ProcessGroup& group) {
    const Reduced reduced(one, group);
    EXPECT_FALSE(reduced.reducer->has_result());
    reduced.backward();
    EXPECT_TRUE(reduced.reducer->has_result());
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(1 + 2)));
    reduced.reducer->clear();
    EXPECT_FALSE(reduced.reducer->has_result());
    reduced.backward(2.0);  // nothing of the previous window is left
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(2 * (1 + 2))));
  });
}

TEST(GradReducer, CountsAMissingGradientAsZerosAndAddsUpBackwards) {
  for_each_case([](const ReducerCase& one, const comm::ProcessGroup& group) {
    const Reduced reduced(one, group);
    reduced.reducer->set_boundary(false);
    EXPECT_FALSE(reduced.reducer->sums(0).defined());
    reduced.backward(1.0, /*without=*/reduced.rank == 0 ? 1 : kReducedShapes.size());
    EXPECT_FALSE(reduced.reducer->has_result());
    EXPECT_TRUE(reduced.reducer->sums(0).defined());
    reduced.reducer->set_boundary(true);
    reduced.backward(1.0, /*without=*/3);
    // p1 lacks rank 0's first gradient, p3 both ranks' second one.
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected({6, 5, 6, 3})));
    EXPECT_THAT(floats_of(reduced.reducer->sums(0)), ElementsAreArray(reduced.result()));
    reduced.reducer->clear();
    EXPECT_FALSE(reduced.reducer->sums(0).defined());
  });
}

TEST(GradReducer, AveragesBeforeOrAfterTheSum) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {1, 2, 3}) {
      for (const Averaging& averaging : {Averaging::mean(2), Averaging::prescaled_mean(2),
                                         Averaging::predivided_mean(2, 4.0), Averaging::sum()}) {
        ReducerCase one = reducer_cases(stage).front();
        one.options.averaging = averaging;
        const Reduced reduced(one, world.group());
        reduced.backward();
        const double factor = averaging.before * averaging.after * 3;
        EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(factor)))
            << one.name << " " << averaging.before << " " << averaging.after;
      }
    }
  });
}

/// Runs a check for all dtypes and all ways to reduce. The dtypes are those of parameters, kept sums and
/// travelling sums.
void for_each_dtype(int world_size,
                    const std::function<void(const ReducerCase&, const comm::ProcessGroup&)>& check) {
  constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
  testing::run_ranks(world_size, [&](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      for (ReducerCase one : reducer_cases(std::max(stage, 1))) {
        if (stage == 0 && !one.keeps_whole) continue;
        one.stage = stage;
        for (const at::ScalarType own : kDtypes) {
          for (const std::optional<at::ScalarType> kept :
               {std::optional<at::ScalarType>(), {at::kFloat}, {at::kBFloat16}}) {
            for (const at::ScalarType travelling : kDtypes) {
              one.dtype = own;
              one.options.accumulation_dtype = kept;
              one.options.communication_dtype = travelling;
              one.options.averaging = Averaging::mean(world_size);
              SCOPED_TRACE(message(one.name, " (", stage, "), gradients of ", own, ", kept in ",
                                   kept.value_or(own), ", travel in ", travelling));
              check(one, world.group());
              if (::testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  });
}

// The gradients are 1 and 1/256; bf16 rounds their sum to 1.
TEST(GradReducer, RoundsASumToWhatTravelsAndToWhatIsKeptAlone) {
  for_each_dtype(2, [](const ReducerCase& one, const comm::ProcessGroup& group) {
    const bool is_rounded = one.options.communication_dtype == at::kBFloat16 ||
                            one.options.accumulation_dtype.value_or(one.dtype) == at::kBFloat16;
    const double mean = is_rounded ? 0.5 : 0.501953125;
    const Reduced reduced(one, group);
    const auto backward = [&](bool is_boundary) {
      reduced.reducer->set_boundary(is_boundary);
      reduced.backward_of(reduced.rank == 0 ? 1.0 : 1.0 / 256);
    };
    const auto expect = [&](double value) {
      int64_t count = 0;
      for (const float element : reduced.result()) {
        if (element == 0) continue;  // padding
        ++count;
        ASSERT_EQ(element, value);
      }
      EXPECT_GE(count, one.stage == 0 ? 12 : 1);
    };
    backward(true);
    expect(mean);
    reduced.reducer->clear();
    backward(false);
    backward(true);
    expect(2 * mean);
  });
}

// The mean is two thirds. It must not be rounded to the travelling dtype after the sum.
TEST(GradReducer, AveragesInTheDtypeOfMoreBits) {
  for_each_dtype(3, [](const ReducerCase& one, const comm::ProcessGroup& group) {
    const at::ScalarType kept = one.options.accumulation_dtype.value_or(one.dtype);
    const auto rounded = at::scalar_tensor(2.0 / 3).to(kept).item<float>();
    const Reduced reduced(one, group);
    reduced.backward_of(reduced.rank == 0 ? 0.0 : 1.0);
    for (const float element : reduced.result()) {
      if (element != 0) {
        ASSERT_FLOAT_EQ(element, rounded);
      }
    }
  });
}

TEST(GradReducer, ShowsTheWholeSumInTheParametersAtStage0) {
  testing::run_ranks(2, [](comm::World& world) {
    ReducerCase one = reducer_cases(1).front();
    one.stage = 0;
    const Reduced reduced(one, world.group());
    reduced.backward();
    for (size_t param = 0; param < kReducedShapes.size(); ++param) {
      const at::Tensor grad = reduced.store->groups()[0].params[param].tensor.grad();
      ASSERT_TRUE(grad.defined());
      EXPECT_EQ(grad.sizes(), at::IntArrayRef(kReducedShapes[param]));
      EXPECT_THAT(floats_of(grad), ElementsAreArray(floats_of(marked_values(kReducedShapes, param, 3.0))));
    }
    reduced.reducer->clear();
    EXPECT_FALSE(reduced.store->groups()[0].params[0].tensor.grad().defined());
  });
}

TEST(GradReducer, TakesWhatCameWhilePausedAsOneBackward) {
  for_each_case([](const ReducerCase& one, const comm::ProcessGroup& group) {
    const Reduced reduced(one, group);
    reduced.reducer->pause();
    for (size_t param = 0; param < kReducedShapes.size(); ++param) reduced.give(param, reduced.rank + 1);
    EXPECT_FALSE(reduced.reducer->is_open());
    reduced.reducer->resume();
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
    reduced.reducer->clear();

    reduced.reducer->pause();
    reduced.give(0, 7.0);
    reduced.reducer->resume_without_gradients();
    EXPECT_FALSE(reduced.store->groups()[0].params[0].tensor.grad().defined());
    reduced.backward();
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
  });
}

TEST(GradReducer, SaysOfEachPartOnceThatItIsFinal) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {2, 3}) {
      const Reduced reduced(reducer_cases(stage).front(), world.group());
      std::vector<Interval> told;
      std::vector<float> seen(reduced.expected(3).size(), -1);
      reduced.reducer->on_final([&](const OwnedPart& part) {
        if (part.interval.empty()) return;
        told.push_back(part.interval);
        const std::vector<float> values = floats_of(reduced.reducer->gradient(0, part.interval));
        std::copy(values.begin(), values.end(), seen.begin() + part.interval.begin);
      });
      const std::vector<OwnedPart> promised = reduced.reducer->final_parts();
      reduced.backward();
      ASSERT_EQ(told.size(), promised.size()) << stage;
      for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], promised[i].interval) << stage;
      EXPECT_THAT(seen, ElementsAreArray(reduced.expected(3))) << stage;
      EXPECT_ERROR(UsageError, reduced.give(1, 1.0), "parameter 'p1'", "call step() first",
                   "super_offload to false");
    }
  });
}

// A parameter's number must not wrap around at 256, which would mean that it does not travel by rows.
TEST(GradReducer, SendsRowsOfAnyNumberOfParametersAsRows) {
  testing::run_ranks(2, [](comm::World& world) {
    constexpr size_t kNum = 258;
    constexpr int64_t kRows = 8;
    const auto notes = std::make_shared<testing::CallNotes>();
    const comm::World counted = testing::counted_world(world, notes);
    NamedTensors params;
    ReducerOptions options;
    for (size_t index = 0; index < kNum; ++index) {
      params.push_back({"p" + std::to_string(index), at::zeros({kRows, 1}).requires_grad_()});
      options.by_rows.insert(params.back().tensor.unsafeGetTensorImpl());
    }
    ParamStore store({params}, 2, ParamStore::Options{.stage = 0});
    const SumUse use = {.owned = {{0, store.groups().front().layout.padded_numel()}}};
    const auto reducer = make_full_gradients(store, ZeroGroups(counted.group()), options, use);
    for (size_t index = 0; index < kNum; ++index) {
      const at::Tensor gradient = at::zeros({kRows, 1});
      gradient[world.rank()] = double(index + 1);
      store.groups()[0].params[index].tensor.mutable_grad() = gradient;
      reducer->on_gradient(0, index);
    }
    reducer->finish_backward();
    EXPECT_EQ(testing::count_calls(*notes, "all_reduce"), 0) << "a table travelled as a whole";
    for (const size_t index : {size_t{0}, size_t{255}, size_t{256}, kNum - 1}) {
      const Interval place = store.groups()[0].layout.place(index);
      EXPECT_EQ(reducer->gradient(0, place).sum().item<double>(), 2.0 * double(index + 1)) << index;
    }
  });
}

TEST(GradReducer, NamesTheParameterThatGotNone) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {1, 2, 3}) {
      ReducerCase one = reducer_cases(stage).front();
      one.options.keys.ignore_unused_parameters = false;
      const Reduced reduced(one, world.group());
      EXPECT_ERROR(UsageError, reduced.backward(1.0, /*without=*/2), "parameter 'p2' received no gradient",
                   "on rank " + std::to_string(world.rank()), "zero_optimization.ignore_unused_parameters");
    }
  });
}

TEST(GradReducer, NamesTheGradientThatWasNotFiniteBeforeItMetOthers) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {1, 2, 3}) {
      ReducerCase one = reducer_cases(stage).front();
      one.use.trace_non_finite = true;
      const Reduced reduced(one, world.group());
      reduced.backward();
      EXPECT_FALSE(reduced.reducer->first_non_finite());
      reduced.reducer->clear();
      reduced.backward(reduced.rank == 1 ? std::numeric_limits<double>::infinity() : 1.0);
      const auto first = reduced.reducer->first_non_finite();
      ASSERT_EQ(first.has_value(), reduced.rank == 1) << one.name;
      if (first) {
        EXPECT_EQ(first->param, 3U) << one.name;
      }
    }
  });
}

TEST(GradReducer, LaysItsBucketsAnewBetweenBackwards) {
  for_each_case([](const ReducerCase& one, const comm::ProcessGroup& group) {
    const Reduced reduced(one, group);
    reduced.backward();
    reduced.reducer->clear();
    for (const int64_t numel : {1000, 1, 7}) {
      reduced.reducer->set_bucket_numel(numel);
      reduced.backward();
      EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3))) << numel;
      reduced.reducer->clear();
    }
    EXPECT_ERROR(UsageError, reduced.reducer->set_bucket_numel(0), "bucket_size 0, expected at least 1");
    reduced.give(3, reduced.rank + 1);
    EXPECT_TRUE(reduced.reducer->is_open());
    EXPECT_ERROR(UsageError, reduced.reducer->set_bucket_numel(5), "within a backward");
    EXPECT_ERROR(UsageError, reduced.reducer->pause(), "within a backward");
    reduced.reducer->clear();  // all ranks complete the reductions that some may have begun
    reduced.backward();
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
  });
}

}  // namespace
}  // namespace deepspeed::zero
