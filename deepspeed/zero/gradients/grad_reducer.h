// Takes gradients as backward produces them, sums them over the ranks and keeps what this rank needs.
//
// Two strategies: FullGradients (stage 0: a whole flat buffer, reduced once at the accumulation boundary) and
// PartitionedGradients (only the own part is kept; reduced at the boundary at stage 1, at every backward at
// stages 2 and 3).
// Which buckets exist, and the order in which they are launched, is static; a gradient that never comes
// counts as zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/gradients/bucket.h"
#include "deepspeed/zero/gradients/bucket_space.h"
#include "deepspeed/zero/gradients/launch_order.h"
#include "deepspeed/zero/gradients/non_finite.h"
#include "deepspeed/zero/gradients/quantized_sum.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/gradients/window_state.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/offload/optimizer_offload.h"
#include "deepspeed/zero/offload/slice_arrivals.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// What becomes of the sums on this rank, as its optimizer says.
struct SumUse {
  std::vector<Interval> owned;  // per group: what this rank updates
  // Where it takes all of them, stages 2 and 3 keep the sums in host memory; else they are on the device.
  OptimizerOffload offload = {};
  bool trace_non_finite = false;  // note which gradients are not finite before they are added to others'
};

/// Not thread-safe by itself: GradHooks calls it under one lock.
class GradReducer {
 public:
  virtual ~GradReducer() = default;
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Says whether the backward that runs, or comes next, is the last one before a step.
  void set_boundary(bool boundary) { boundary_ = boundary; }
  bool boundary() const { return boundary_; }

  /// The gradient of a parameter was accumulated into its grad. While paused it stays there.
  void on_gradient(size_t group, size_t param);
  /// Reduces the gradients that backwards before the boundary have only summed here. Does nothing where the
  /// last backward was at the boundary.
  virtual void complete_window() = 0;

  /// Stage 0, in a window without a backward: what the program has put into the parameters' grads, alike on
  /// all ranks, are the window's reduced gradients. Returns whether there is any.
  bool take_given_grads();

  /// Says that this backward gives no more gradients to a unit's parameters; missing ones count as zeros. All
  /// ranks call it at the same place among their collectives. finish_backward() does it for the units for
  /// which it was not called.
  void on_unit_done(size_t unit);

  /// Throws UsageError within a backward.
  void pause();
  bool is_paused() const { return zero::is_paused(state_); }
  /// Ends the pause and takes the gradients that came meanwhile, as those of one backward.
  void resume();
  /// Ends the pause and forgets the gradients that came meanwhile, and the window. Talks to no rank.
  void resume_without_gradients();

  /// Ends a backward that has returned: missing gradients count as zeros. At the boundary all reductions are
  /// done afterwards. Does nothing while paused.
  void finish_backward() {
    if (is_paused()) return;
    take_left();
    reduce_backward();
  }

  /// From here on gradients of a backward that nobody has announced stay in the parameters' grad until
  /// finish_backward(), so that the program may drop or change them there, alike on all ranks.
  void leave_unannounced() { leaves_unannounced_ = true; }
  /// Announces a backward, until the end of the scope.
  class Announcement {
   public:
    explicit Announcement(GradReducer& reducer) : reducer_(reducer) { reducer_.is_announced_ = true; }
    ~Announcement() { reducer_.is_announced_ = false; }
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;

   private:
    GradReducer& reducer_;
  };
  /// Forgets an unannounced backward of which the program has left no gradient in the parameters.
  void forget_dropped();
  /// The reduced gradient of the owned interval of a group, valid between the boundary's finish_backward()
  /// and clear().
  virtual at::Tensor gradient(size_t group) const = 0;
  /// Returns the elements `part` of gradient(group). Where gradients are on their way to the host, it waits
  /// for these alone.
  virtual at::Tensor gradient(size_t group, const Interval& part) const {
    return gradient(group).narrow(0, part.begin, part.numel());
  }
  /// What gradient(group) holds between two backwards of a window, reduced or not yet; undefined before its
  /// first gradient.
  at::Tensor sums(size_t group) const;
  /// What this rank alone has summed of a parameter's gradient, in its shape; undefined where there is none,
  /// and where it went to other ranks.
  virtual at::Tensor local_gradient(size_t group, size_t param) const {
    return is_paused() ? store_.groups()[group].params[param].tensor.grad() : at::Tensor();
  }
  /// While `keeps` says so, which does not change within a window, gradients stay this rank's own: stages 0
  /// and 1.
  void keep_local(std::function<bool()> keeps) { keeps_local_ = std::move(keeps); }
  /// What this rank alone has summed of a group in this window, (padded numel) in flat order; after a
  /// boundary's backward that kept it.
  virtual at::Tensor local_gradients(size_t group) const;
  /// Replaces gradient(), until clear(), by the owned part of `flat`: as local_gradients() has it, in fp32.
  virtual void set_gradients(size_t group, at::Tensor flat);
  /// Whether the sums are in host memory, which stages 2 and 3 alone do.
  bool keeps_on_host() const { return use_.offload.keeps_gradients(store_.partitions_gradients()); }

  /// Stages 2 and 3: calls `listener`, in the boundary's backward, with each part of what this rank keeps as
  /// soon as nothing is added to it any more. From the first call to clear() another gradient of such a part
  /// is a UsageError.
  void on_final(std::function<void(const OwnedPart&)> listener) { on_final_ = std::move(listener); }
  /// Lists the parts with which on_final()'s listener is called in a backward.
  std::vector<OwnedPart> final_parts() const;
  /// Returns a function, for another thread to call, that waits until a final part has its values in
  /// gradient(). This object does not wait for that part any more.
  virtual std::function<void()> hand_over(size_t group, const Interval& part);

  /// Says that a backward has failed in its middle: the window holds a part of its gradients, so that no step
  /// may use it, until clear(), or resume_without_gradients() of a pause.
  void note_failure() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }
  /// Is for who has dropped all gradients in the parameters, in a pause too.
  void forget_failure() { has_failed_ = false; }

  /// Whether gradient() holds the reduced gradients of the window.
  bool has_result() const { return zero::has_result(state_); }
  /// Starts a new accumulation window. Where a backward was not finished, all ranks first make the reductions
  /// that some of them may have begun.
  void clear();
  /// Lays the buckets anew for the reductions from here on, with at most so many elements each. Throws
  /// UsageError below 1, or within a backward.
  void set_bucket_numel(int64_t numel);
  /// Says how the sums of the reductions from here on become gradients. Throws UsageError within a backward.
  void set_averaging(const Averaging& averaging);
  /// With trace_non_finite: the parameter whose gradient was not finite on this rank before it was added to
  /// those of other ranks, the nearest to the loss where there are several. Waits for the device.
  std::optional<ParamPlace> first_non_finite() const { return non_finite_.first(); }
  /// What quantized sums have kept of gradients for later ones is multiplied; 0 forgets it.
  void scale_errors(double factor);
  /// Whether something is kept so.
  bool keeps_errors() const { return quantized_ && options_.loco; }
  /// Returns it by name; shared, empty before the first sum.
  NamedErrors errors() const;
  /// Takes copies of errors() of a run with as many ranks. Returns whether they fit the buckets and the
  /// nodes; where not, nothing is kept.
  bool load_errors(const NamedErrors& errors);
  /// Bytes of gradients held between steps, transient buckets not counted.
  virtual int64_t bytes() const = 0;
  /// Whether a backward has begun and was not finished (a direct loss.backward()).
  bool is_open() const { return zero::is_open(state_); }

 protected:
  using Works = std::vector<comm::Work>;

  GradReducer(ParamStore& store, ZeroGroups ranks, ReducerOptions options, SumUse use);

  virtual void take_gradient(size_t group, size_t param) = 0;
  /// What finish_backward() does, whether paused or not.
  void reduce_backward();
  /// Launches the buckets that are complete, unless the strategy leaves that to the end of backward.
  virtual void launch_complete() = 0;
  /// Reduces what finish_backward() is to reduce.
  virtual void complete_backward() = 0;
  /// Ends a backward whose gradients are given up, after the collectives that other ranks may have begun.
  virtual void abandon_backward() = 0;
  virtual void clear_window() = 0;
  virtual void forget_bucket_sizes() {}
  /// What take_given_grads() does.
  virtual bool put_given_grads() { return false; }
  /// Tells, by [group][param], which parameters got a gradient in this window.
  virtual const std::vector<std::vector<bool>>& used() const = 0;

  bool keeps_local() const { return keeps_local_ && keeps_local_(); }
  /// Whether each rank gets the sum of its own elements alone; else that of all.
  bool sums_for_owners() const { return store_.partitions_states() && options_.keys.reduce_scatter; }
  /// Whether gradients travel together, in a buffer; else each parameter's alone.
  bool travel_together() const;
  /// Starts the sum of a bucket's values, in the communication dtype, over the ranks that together hold
  /// everything once. values: 1-D, as space_ lays them; they are multiplied by averaging.before first.
  /// own: where the sum of this rank's part goes, where puts_sums_elsewhere().
  Works start_sum(const Bucket& bucket, const at::Tensor& values, const comm::OwnSum& own = {});
  /// Whether the reduction of these values can put this rank's part somewhere else.
  bool puts_sums_elsewhere(const Bucket& bucket, const at::Tensor& values) const;
  /// Bytes of what quantized sums have kept.
  int64_t error_bytes() const { return quantized_ ? quantized_->bytes() : 0; }
  /// Whether the bucket is one parameter of `by_rows`.
  bool travels_by_rows(const Bucket& bucket) const;
  /// Sums a bucket that travels by rows over the ranks, and waits. averaging.before is applied first.
  void sum_by_rows(const Bucket& bucket, const at::Tensor& values);
  /// Waits for the sum, and converts it back where it travelled in another dtype.
  void finish_sum(const at::Tensor& values, Works& works);
  void scale_after(const at::Tensor& tensor) const;
  /// Returns dtype and device of the gradients that are kept for a group.
  at::TensorOptions kept_options(size_t group) const;
  /// Throws UsageError: another gradient came after on_final()'s listener had the parameter's part.
  void refuse_late_gradient(size_t group, size_t param) const;
  /// Whether on_final() has a listener and this is the boundary's backward.
  bool gives_out() const { return boundary_ && on_final_; }
  /// Passes a final part to the listener.
  void give_out(const OwnedPart& part);

  ParamStore& store_;
  ZeroGroups ranks_;
  ReducerOptions options_;
  SumUse use_;
  std::unique_ptr<BucketSpace> space_;
  std::vector<Bucket> buckets_;
  LaunchOrder order_;

 private:
  Works start_sum_of(const Bucket& bucket, const at::Tensor& travelling, const comm::OwnSum& own);
  std::vector<Bucket> lay_out(int64_t numel) const;
  LaunchOrder make_order() const;
  void check_all_used() const;
  void refuse_gradient_after_step_began(size_t group, size_t param);
  /// Takes the gradients that leave_unannounced() has left in the parameters.
  void take_left();
  /// Takes the gradients that are in the parameters, as those of one backward.
  void take_from_params();
  /// Whether the event may happen now; then it has.
  bool note(WindowEvent event);

  struct Converted {
    const void* values;
    at::Tensor travelling;
  };
  std::vector<Converted> converted_;
  std::optional<QuantizedSum> quantized_;
  NonFiniteGradients non_finite_;
  std::function<void(const OwnedPart&)> on_final_;
  std::function<bool()> keeps_local_;
  WindowState state_ = WindowState::kIdle;
  bool has_failed_ = false;
  bool leaves_unannounced_ = false;
  bool is_announced_ = false;
  std::optional<WindowState> left_in_;  // the state before the first gradient that was left in its parameter
  bool boundary_ = true;                // of the backward that runs or comes next; it may be set at any time
};

std::unique_ptr<GradReducer> make_full_gradients(ParamStore& store, ZeroGroups ranks, ReducerOptions options,
                                                 SumUse use);
std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, ZeroGroups ranks,
                                                        ReducerOptions options, SumUse use);

}  // namespace deepspeed::zero
