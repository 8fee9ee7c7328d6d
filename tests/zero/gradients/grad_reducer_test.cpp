// The two strategies alone, without autograd: gradients are handed to them as hooks would, in another order
// on each rank.
#include "deepspeed/zero/gradients/grad_reducer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/params/shard_store.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/zero/params/sharded_model.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAreArray;
using testing::floats_of;
using testing::marked_values;
using testing::Shapes;

// 12 elements: buckets of at most 6 are (p3 p2), (p1), (p0) on any stage; the middle of the flat space is in
// p1.
const Shapes kReducedShapes = {{3}, {2, 2}, {1, 3}, {2}};

struct ReducerCase {
  std::string name;
  int stage = 1;
  ReducerOptions options = {};
  SumUse use = {};
};

std::vector<ReducerCase> reducer_cases(int stage) {
  const auto with = [&](const std::string& name, auto change) {
    ReducerCase one{name + " at stage " + std::to_string(stage), stage};
    one.options.keys.reduce_bucket_size = 6;
    change(one);
    return one;
  };
  std::vector<ReducerCase> cases = {
      with("plain", [](ReducerCase&) {}),
      with("one bucket", [](ReducerCase& c) { c.options.keys.reduce_bucket_size = 1000; }),
      with("overlap", [](ReducerCase& c) { c.options.overlap = true; }),
      with("each parameter alone", [](ReducerCase& c) { c.options.keys.contiguous_gradients = false; }),
      with("an operation for each owner",
           [](ReducerCase& c) { c.options.keys.use_multi_rank_bucket_allreduce = false; }),
      with("all ranks get all", [](ReducerCase& c) { c.options.keys.reduce_scatter = false; }),
      with("in half", [](ReducerCase& c) { c.options.communication_dtype = at::kHalf; }),
  };
  if (stage < 2) return cases;
  cases.push_back(with("kept in memory of the host", [](ReducerCase& c) {
    c.options.overlap = true;
    c.use.offload = {.device = OffloadDevice::kCpu, .pin_memory = false, .always_copies = true};
  }));
  return cases;
}

/// A reducer of marked parameters on this rank.
struct Reduced {
  Reduced(const ReducerCase& one, const comm::ProcessGroup& group) : rank(group.rank()), size(group.size()) {
    NamedTensors params = testing::marked_params(kReducedShapes);
    SumUse use = one.use;
    if (one.stage == 3) {
      store = std::make_unique<ShardStore>(std::vector<NamedTensors>{params}, NamedTensors{},
                                           ZeroGroups(group), testing::nothing_persistent());
      use.owned = {{0, store->shards(0)->flat_numel()}};
    } else {
      store = std::make_unique<ParamStore>(std::vector<NamedTensors>{params}, size,
                                           ParamStore::Options{.stage = one.stage});
      const FlatLayout& layout = store->groups().front().layout;
      use.owned = {one.stage == 0 ? Interval{0, layout.padded_numel()} : layout.partition(rank)};
    }
    reducer = one.stage < 2 ? make_full_gradients(*store, ZeroGroups(group), one.options, use)
                            : make_partitioned_gradients(*store, ZeroGroups(group), one.options, use);
  }

  /// As autograd does: the gradient stands in the parameter, then its hook runs.
  void give(size_t param, double factor) const {
    store->groups()[0].params[param].tensor.mutable_grad() = marked_values(kReducedShapes, param, factor);
    reducer->on_gradient(0, param);
  }
  /// A backward with the gradients of all parameters but `without`, times the rank's number from 1 on.
  void backward(double factor = 1.0, size_t without = kReducedShapes.size()) const {
    for (size_t step = 0; step < kReducedShapes.size(); ++step) {
      const size_t param = rank == 0 ? kReducedShapes.size() - 1 - step : step;
      if (param != without) give(param, factor * (rank + 1));
    }
    reducer->finish_backward();
  }
  /// What this rank keeps where the sum of each parameter over the ranks is its marked values times that
  /// factor.
  std::vector<float> expected(const std::vector<double>& factors) const {
    const StoredGroup& group = store->groups()[0];
    const bool is_sharded = store->shards(0) != nullptr;
    const at::Tensor all = at::zeros({group.layout.padded_numel()});
    at::Tensor shards = at::zeros({is_sharded ? store->shards(0)->flat_numel() : 0});
    for (size_t param = 0; param < kReducedShapes.size(); ++param) {
      const at::Tensor values = marked_values(kReducedShapes, param, factors[param]).view({-1});
      if (is_sharded) {
        const Interval held = store->shards(0)->elements(param, rank);
        shards.narrow(0, store->shards(0)->place(param).begin, held.numel())
            .copy_(values.narrow(0, held.begin, held.numel()));
      } else {
        const Interval place = group.layout.place(param);
        all.narrow(0, place.begin, place.numel()).copy_(values);
      }
    }
    if (is_sharded) return floats_of(shards);
    const Interval own = group.layout.partition(rank);
    return floats_of(all.narrow(0, own.begin, own.numel()));
  }
  std::vector<float> expected(double factor) const {
    return expected(std::vector<double>(kReducedShapes.size(), factor));
  }
  std::vector<float> result() const { return floats_of(reducer->gradient(0)); }

  int rank;
  int size;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<GradReducer> reducer;
};

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
    reduced.backward(2.0);  // nothing of the window before is left
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
    // p1 lacks rank 0's first, p3 both ranks' second.
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
    reduced.reducer->clear();  // all ranks make the reductions that some may have begun
    reduced.backward();
    EXPECT_THAT(reduced.result(), ElementsAreArray(reduced.expected(3)));
  });
}

}  // namespace
}  // namespace deepspeed::zero
