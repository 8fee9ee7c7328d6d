// Takes gradients as backward produces them, sums them over the ranks and keeps what this rank needs.
//
// Two strategies: FullGradients (stages 0 and 1: a whole flat buffer, reduced once at the accumulation
// boundary) and PartitionedGradients (stages 2 and 3: reduced at every backward, only the own part is kept).
// Which buckets exist, and the order in which they are launched, is static; a gradient that never comes
// counts as zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/averaging.h"
#include "deepspeed/zero/gradients/bucket.h"
#include "deepspeed/zero/gradients/bucket_space.h"
#include "deepspeed/zero/gradients/launch_order.h"
#include "deepspeed/zero/gradients/non_finite.h"
#include "deepspeed/zero/offload/slice_arrivals.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Dtypes of single parameters, by the tensors of the model.
using ParamDtypes = std::unordered_map<const at::TensorImpl*, at::ScalarType>;
using ParamSet = std::unordered_set<const at::TensorImpl*>;
/// Numbers, from 1 on, of the units (gather_unit.h) that parameters are in.
using ParamUnits = std::unordered_map<const at::TensorImpl*, size_t>;

struct ReducerOptions {
  int64_t bucket_numel = 500'000'000;
  bool overlap = false;           // launch a bucket as soon as its gradients are there
  bool contiguous = true;         // gradients travel together in a buffer; false: each parameter's alone
  bool to_owners = true;          // each rank gets the sum of its own elements alone; false: of all
  bool owners_together = true;    // one operation for all owners of a bucket; false: one for each
  bool allow_unused = true;       // false: a parameter without a gradient at the boundary is an error
  bool keep_param_grads = false;  // stage 0: after a reduction the parameters' grads are views of the result
  bool keep_on_host = false;      // stages 2 and 3: what is kept is in host memory; else on the device
  bool pin_memory = true;         // with keep_on_host
  bool copies_to_host = false;    // keep_on_host on a CPU: copy as if it were another device
  bool trace_non_finite = false;  // note which gradients are not finite before they are added to others'
  at::ScalarType communication_dtype = at::kFloat;  // fp32 means fp64 for parameters in fp64
  ParamDtypes param_communication_dtypes;           // of parameters that travel in a dtype of their own
  ParamSet by_rows;                                 // parameters whose gradient travels as its touched rows
  ParamUnits units;  // of leaf modules: which of their gradients exist differs from rank to rank
  // Of the sums that are kept; absent, and for parameters in fp64: the parameters' own.
  std::optional<at::ScalarType> accumulation_dtype;
  Averaging averaging;
  std::vector<Interval> owned;  // per group: what this rank updates
};

/// Not thread-safe by itself: GradHooks calls it under one lock.
class GradReducer {
 public:
  virtual ~GradReducer() = default;
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Whether the backward that runs, or comes next, is the last one before a step.
  void set_boundary(bool boundary) { boundary_ = boundary; }
  bool boundary() const { return boundary_; }

  /// The gradient of a parameter was accumulated into its grad. While paused it stays there.
  void on_gradient(size_t group, size_t param) {
    if (paused_) return;
    if (has_result_ && gave_out_) refuse_gradient_after_step_began(group, param);
    has_result_ = false;
    take_gradient(group, param);
  }
  /// Reduces what backwards that were not at the boundary left; nothing where the last one was.
  virtual void complete_window() = 0;

  /// The backward that runs gives no more gradients to the parameters of a unit; those that got none count as
  /// zeros. All ranks say so at the same place among their collectives. For units of which nobody says so,
  /// finish_backward() does.
  void on_unit_done(size_t unit);

  void pause() { paused_ = true; }
  bool is_paused() const { return paused_; }
  /// Takes the gradients that came while paused, as those of one backward.
  void resume();
  /// Forgets them, and the window; talks to no rank.
  void resume_without_gradients();

  /// Backward has returned: what is missing counts as zeros; at the boundary all reductions are done
  /// afterwards.
  void finish_backward();
  /// The reduced gradient of the owned interval of a group, valid between the boundary's finish_backward()
  /// and clear().
  virtual at::Tensor gradient(size_t group) const = 0;
  /// Elements of it; waits for these alone where gradients are on their way to the host.
  virtual at::Tensor gradient(size_t group, const Interval& part) const {
    return gradient(group).narrow(0, part.begin, part.numel());
  }
  bool keeps_on_host() const { return options_.keep_on_host; }

  /// Stages 2 and 3: calls `listener`, in the boundary's backward, with each part of what this rank keeps as
  /// soon as nothing is added to it any more. From the first call to clear() another gradient of such a part
  /// is a UsageError.
  void on_final(std::function<void(const OwnedPart&)> listener) { on_final_ = std::move(listener); }
  /// All that it is called with in a backward.
  std::vector<OwnedPart> final_parts() const;
  /// Returns what waits until a part of which that was said has its values in gradient(), for another thread:
  /// this object does not wait for it any more.
  virtual std::function<void()> hand_over(size_t group, const Interval& part);

  /// Whether gradient() holds the reduced gradients of the window.
  bool has_result() const { return has_result_; }
  /// Starts a new accumulation window. Of a backward that was not finished, all ranks make the reductions
  /// that some of them may have begun.
  void clear();
  /// Lays the buckets anew for the reductions from here on, with at most so many elements each. Throws
  /// UsageError below 1, or within a backward.
  void set_bucket_numel(int64_t numel);
  /// With trace_non_finite: the parameter whose gradient was not finite on this rank before it was added to
  /// those of other ranks, the nearest to the loss where there are several. Waits for the device.
  std::optional<ParamPlace> first_non_finite() const { return non_finite_.first(); }
  /// Bytes of gradients held between steps, transient buckets not counted.
  virtual int64_t bytes() const = 0;
  /// Whether a backward has begun and was not finished (a direct loss.backward()).
  bool is_open() const { return open_; }

 protected:
  using Works = std::vector<comm::Work>;

  GradReducer(ParamStore& store, comm::ProcessGroup group, ReducerOptions options);

  virtual void take_gradient(size_t group, size_t param) = 0;
  /// Launches what is complete, where that is not left to the end.
  virtual void launch_complete() = 0;
  /// Reduces what finish_backward() is to reduce.
  virtual void complete_backward() = 0;
  /// Ends a backward whose gradients nobody wants.
  virtual void abandon_backward() = 0;
  virtual void clear_window() = 0;
  virtual void forget_bucket_sizes() {}
  /// By [group][param]: whether it got a gradient in the window.
  virtual const std::vector<std::vector<bool>>& used() const = 0;

  /// Sum over the ranks of the values of `bucket` (1-D, as space_ lays them) in the communication dtype, with
  /// the factor before it.
  Works start_sum(const Bucket& bucket, const at::Tensor& values);
  /// Whether the bucket is one parameter of `by_rows`.
  bool travels_by_rows(const Bucket& bucket) const;
  /// The whole sum of such a bucket, with the factor before it.
  void sum_by_rows(const Bucket& bucket, const at::Tensor& values);
  /// Waits, converts back where another dtype travelled.
  void finish_sum(const at::Tensor& values, Works& works);
  void scale_after(const at::Tensor& tensor) const;
  /// Of the gradients that are kept of a group.
  at::TensorOptions kept_options(size_t group) const;
  /// Throws UsageError: what on_final() was told of this parameter was not its last gradient.
  void refuse_late_gradient(size_t group, size_t param) const;
  /// For what on_final() promises: whether somebody listens, in this backward; tells him.
  bool gives_out() const { return boundary_ && on_final_; }
  void give_out(const OwnedPart& part);

  ParamStore& store_;
  comm::ProcessGroup group_;
  ReducerOptions options_;
  std::unique_ptr<BucketSpace> space_;
  std::vector<Bucket> buckets_;
  LaunchOrder order_;
  bool open_ = false;

 private:
  Works start_sum_of(const Bucket& bucket, const at::Tensor& travelling) const;
  std::vector<Bucket> lay_out(int64_t numel) const;
  LaunchOrder make_order() const;
  void check_all_used() const;
  void refuse_gradient_after_step_began(size_t group, size_t param);

  struct Converted {
    const void* values;
    at::Tensor travelling;
  };
  std::vector<Converted> converted_;
  NonFiniteGradients non_finite_;
  std::function<void(const OwnedPart&)> on_final_;
  bool gave_out_ = false;
  bool has_result_ = false;
  bool boundary_ = true;
  bool paused_ = false;
};

std::unique_ptr<GradReducer> make_full_gradients(ParamStore& store, comm::ProcessGroup group,
                                                 ReducerOptions options);
std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, comm::ProcessGroup group,
                                                        ReducerOptions options);

}  // namespace deepspeed::zero
