// What a reducer and its gradient keeper share.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/gradients/bucket_sum.h"
#include "deepspeed/zero/gradients/buckets/bucket_plan.h"
#include "deepspeed/zero/gradients/grad_window.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/offload/optimizer_offload.h"
#include "deepspeed/zero/offload/slice_arrivals.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Says how this rank's optimizer uses the gradient sums.
struct SumUse {
  std::vector<Interval> owned;  // per group: what this rank updates
  // If all slices of the optimizer are offloaded, stages 2 and 3 keep the sums in host memory; otherwise the
  // sums stay on the device.
  OptimizerOffload offload = {};
  bool trace_non_finite = false;  // note which gradients are not finite before the sum over ranks
};

struct ReducerParts {
  /// always_reduces: every backward sums over the ranks, also before the accumulation boundary. `of_store`
  /// must outlive this object.
  ReducerParts(ParamStore& of_store, ZeroGroups of_ranks, ReducerOptions how, SumUse of_sums,
               bool always_reduces)
      : store(of_store),
        ranks(std::move(of_ranks)),
        options(std::move(how)),
        use(std::move(of_sums)),
        plan(store, ranks.shard, options, use.owned),
        sum(store, ranks, options, plan, use.trace_non_finite),
        window(always_reduces) {}
  ReducerParts(const ReducerParts&) = delete;
  ReducerParts& operator=(const ReducerParts&) = delete;

  /// Returns whether the sums are in host memory (stages 2 and 3 only).
  bool keeps_on_host() const { return use.offload.keeps_gradients(store.partitions_gradients()); }
  /// Returns whether gradients stay local to this rank in this window.
  bool keeps_local_now() const { return keeps_local && keeps_local(); }
  /// Returns dtype and device of the kept gradients of a group.
  at::TensorOptions kept_options(size_t group) const {
    const at::TensorOptions own = store.options(group);
    const bool has_other = options.accumulation_dtype && store.groups()[group].dtype != at::kDouble;
    return has_other ? own.dtype(*options.accumulation_dtype) : own;
  }
  const NamedTensor& param(size_t group, size_t index) const { return store.groups()[group].params[index]; }
  /// Returns the gradient that autograd left in a parameter.
  at::Tensor& gradient_of(size_t group, size_t index) const {
    return param(group, index).tensor.mutable_grad();
  }

  /// Returns whether this backward calls on_final with final parts of the sums.
  bool tells_final_parts() const { return window.is_boundary() && on_final; }
  void tell_final_part(const OwnedPart& part) {
    window.note(WindowEvent::kFinalPart);
    on_final(part);
  }

  ParamStore& store;
  const ZeroGroups ranks;
  ReducerOptions options;
  const SumUse use;
  BucketPlan plan;
  BucketSum sum;
  GradWindow window;
  std::function<void(const OwnedPart&)> on_final;  // null: no listener
  std::function<bool()> keeps_local;               // null: gradients are summed over the ranks
};

}  // namespace deepspeed::zero
