// A reducer of marked parameters on one rank. Gradients are passed as hooks would, in a different order on
// each rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/shard_store.h"

#include "tests/zero/params/sharded_model.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {

// These have 12 elements. Buckets of at most 6 are (p3 p2), (p1), (p0) at any stage. The middle of the flat
// space is in p1.
inline const testing::Shapes kReducedShapes = {{3}, {2, 2}, {1, 3}, {2}};

struct ReducerCase {
  std::string name;
  int stage = 1;
  ReducerOptions options = {};
  SumUse use = {};
  bool keeps_whole = false;           // uses stage 0's strategy, also at stage 1
  at::ScalarType dtype = at::kFloat;  // of the parameters and their gradients
};

/// Returns the ways to reduce at a stage, the plain one first.
inline std::vector<ReducerCase> reducer_cases(int stage) {
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
  if (stage == 1) {
    cases.push_back(with("whole", [](ReducerCase& c) { c.keeps_whole = true; }));
    cases.push_back(
        with("whole with overlap", [](ReducerCase& c) { c.keeps_whole = c.options.overlap = true; }));
    cases.push_back(with("accumulating", [](ReducerCase& c) { c.options.expects_accumulation = true; }));
    cases.push_back(
        with("accumulating in double", [](ReducerCase& c) { c.options.accumulation_dtype = at::kDouble; }));
    cases.push_back(with("accumulating in double, each parameter alone", [](ReducerCase& c) {
      c.options.accumulation_dtype = at::kDouble;
      c.options.keys.contiguous_gradients = false;
    }));
  }
  if (stage < 2) return cases;
  cases.push_back(with("kept in memory of the host", [](ReducerCase& c) {
    c.options.overlap = true;
    c.use.offload = {.device = OffloadDevice::kCpu, .pin_memory = false, .always_copies = true};
  }));
  return cases;
}

/// Holds a reducer of marked parameters on this rank.
struct Reduced {
  Reduced(const ReducerCase& one, const comm::ProcessGroup& group) : rank(group.rank()), size(group.size()) {
    NamedTensors params = testing::marked_params(kReducedShapes);
    SumUse use = one.use;
    if (one.stage == 3) {
      ShardStore::Options options = testing::nothing_persistent();
      options.dtype = one.dtype;
      store = std::make_unique<ShardStore>(std::vector<NamedTensors>{params}, NamedTensors{},
                                           ZeroGroups(group), options);
      use.owned = {{0, store->shards(0)->flat_numel()}};
    } else {
      store = std::make_unique<ParamStore>(std::vector<NamedTensors>{params}, size,
                                           ParamStore::Options{.dtype = one.dtype, .stage = one.stage});
      const FlatLayout& layout = store->groups().front().layout;
      use.owned = {one.stage == 0 ? Interval{0, layout.padded_numel()} : layout.partition(rank)};
    }
    reducer = one.stage == 0 || one.keeps_whole
                  ? make_full_gradients(*store, ZeroGroups(group), one.options, use)
                  : make_partitioned_gradients(*store, ZeroGroups(group), one.options, use);
  }

  /// Acts like autograd: puts the gradient into the parameter, then runs its hook.
  void give(size_t param, double factor) const {
    store->groups()[0].params[param].tensor.mutable_grad() =
        testing::marked_values(kReducedShapes, param, factor);
    reducer->on_gradient(0, param);
  }
  /// Runs a backward in which all gradient elements equal `value`.
  void backward_of(double value) const {
    for (size_t param = 0; param < kReducedShapes.size(); ++param) {
      store->groups()[0].params[param].tensor.mutable_grad() =
          at::full(kReducedShapes[param], value, store->groups()[0].dtype);
      reducer->on_gradient(0, param);
    }
    reducer->finish_backward();
  }
  /// Runs a backward with all gradients but that of `without`, times factor * (rank + 1).
  void backward(double factor = 1.0, size_t without = kReducedShapes.size()) const {
    for (size_t step = 0; step < kReducedShapes.size(); ++step) {
      const size_t param = rank == 0 ? kReducedShapes.size() - 1 - step : step;
      if (param != without) give(param, factor * (rank + 1));
    }
    reducer->finish_backward();
  }
  /// Returns what this rank is expected to keep. The sum over ranks of each parameter is its marked values
  /// times its factor.
  std::vector<float> expected(const std::vector<double>& factors) const {
    const StoredGroup& group = store->groups()[0];
    const bool is_sharded = store->shards(0) != nullptr;
    const at::Tensor all = at::zeros({group.layout.padded_numel()});
    at::Tensor shards = at::zeros({is_sharded ? store->shards(0)->flat_numel() : 0});
    for (size_t param = 0; param < kReducedShapes.size(); ++param) {
      const at::Tensor values = testing::marked_values(kReducedShapes, param, factors[param]).view({-1});
      if (is_sharded) {
        const Interval held = store->shards(0)->elements(param, rank);
        shards.narrow(0, store->shards(0)->place(param).begin, held.numel())
            .copy_(values.narrow(0, held.begin, held.numel()));
      } else {
        const Interval place = group.layout.place(param);
        all.narrow(0, place.begin, place.numel()).copy_(values);
      }
    }
    if (is_sharded) return testing::floats_of(shards);
    const Interval own = group.layout.partition(rank);
    return testing::floats_of(all.narrow(0, own.begin, own.numel()));
  }
  std::vector<float> expected(double factor) const {
    return expected(std::vector<double>(kReducedShapes.size(), factor));
  }
  std::vector<float> result() const { return testing::floats_of(reducer->gradient(0)); }

  int rank;
  int size;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<GradReducer> reducer;
};

}  // namespace deepspeed::zero
