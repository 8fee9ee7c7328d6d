// Takes gradients as backward produces them, sums them over the ranks and keeps what this rank needs.
//
// There are two keepers. full_gradients.cpp keeps a whole flat buffer and reduces it once, at the
// accumulation boundary. It serves stage 0, and stage 1 with optimizers that compress exchanges.
// partitioned_gradients.cpp keeps only this rank's part; it reduces at the boundary at stage 1, and at every
// backward at stages 2 and 3.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/gradients/grad_keeper.h"
#include "deepspeed/zero/gradients/non_finite.h"
#include "deepspeed/zero/gradients/quantized_sum.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/gradients/reducer_parts.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/offload/slice_arrivals.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Sums gradients over the ranks. Not thread-safe: GradHooks calls it under one lock.
class GradReducer {
 public:
  using MakeKeeper = std::unique_ptr<GradKeeper> (*)(ReducerParts& parts);

  /// always_reduces: every backward sums over the ranks, also before the accumulation boundary. `store` must
  /// outlive this object.
  GradReducer(ParamStore& store, ZeroGroups ranks, ReducerOptions options, SumUse use, bool always_reduces,
              MakeKeeper make_keeper);
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Sets whether the current or next backward is the last one before a step.
  void set_boundary(bool boundary) { parts_.window.set_boundary(boundary); }
  bool boundary() const { return parts_.window.is_boundary(); }

  /// Takes the gradient that autograd has accumulated in a parameter's grad. While paused it stays there.
  void on_gradient(size_t group, size_t param);
  /// Completes the window's gradients before a step. Sums over the ranks what backwards have only summed
  /// locally. At stage 0, takes gradients that the program has replaced since.
  void complete_window();

  /// Takes the contents of the parameters' grads as the window's reduced gradients. This is for stage 0, in a
  /// window without a backward. The grads must be equal on all ranks. Returns whether there are any.
  bool take_given_grads();

  /// Notes that this backward produces no more gradients for a unit's parameters (ParamUnits). Missing
  /// gradients count as zeros. All ranks call it at the same place among their collectives. finish_backward()
  /// does this for the remaining units.
  void on_unit_done(size_t unit);

  /// Pauses the reducer: gradients stay in the parameters. Throws UsageError within a backward.
  void pause();
  bool is_paused() const { return parts_.window.is_paused(); }
  /// Ends the pause and treats gradients that came during it as one backward's.
  void resume();
  /// Ends the pause, and drops the gradients that came meanwhile and the window. Does not communicate.
  void resume_without_gradients();

  /// Ends a backward that has returned. Missing gradients count as zeros. At the boundary all reductions are
  /// complete on return. Does nothing while paused.
  void finish_backward();

  /// Leaves gradients of backwards without an Announcement in the parameters until finish_backward(). The
  /// program may drop or change them there, in the same way on all ranks.
  void leave_unannounced() { parts_.window.leave_unannounced(); }
  /// Like leave_unannounced(), but only for backwards for which `is_foreign` returns true. `is_foreign` is
  /// called during each backward without an Announcement.
  void leave_foreign(std::function<bool()> is_foreign) { is_foreign_ = std::move(is_foreign); }
  /// Announces a backward while it exists, so that its gradients join the window at once.
  class Announcement {
   public:
    explicit Announcement(GradReducer& reducer) : window_(reducer.parts_.window) {
      window_.set_announced(true);
    }
    ~Announcement() { window_.set_announced(false); }
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;

   private:
    GradWindow& window_;
  };
  /// Forgets a backward whose gradients the program has all dropped from the parameters.
  void forget_dropped();

  /// Returns the reduced gradient of a group's owned interval. It is valid between the boundary's
  /// finish_backward() and clear().
  at::Tensor gradient(size_t group) const { return keeper_->gradient(group); }
  /// Returns the elements `part` of gradient(group). Waits only for these if gradients are being copied to
  /// the host.
  at::Tensor gradient(size_t group, const Interval& part) const { return keeper_->gradient(group, part); }
  /// Returns gradient(group), or an undefined tensor before the group's first gradient. Between two backwards
  /// of a window the values may be this rank's sums, which are not reduced yet.
  at::Tensor sums(size_t group) const;
  /// Returns this rank's local sum of a parameter's gradient, in its shape. Undefined if there is none or it
  /// was sent to other ranks.
  at::Tensor local_gradient(size_t group, size_t param) const;
  /// Keeps gradients local, not summed over ranks, while `keeps` returns true (stages 0 and 1). What it
  /// returns must not change within a window.
  void keep_local(std::function<bool()> keeps) { parts_.keeps_local = std::move(keeps); }
  /// Returns this rank's local sums of a group, (padded numel) in flat order. Call it after a boundary's
  /// backward that kept gradients local.
  at::Tensor local_gradients(size_t group) const;
  /// Makes gradient() return the owned part of `flat`, (padded numel) in fp32, until clear().
  void set_gradients(size_t group, at::Tensor flat);
  /// Returns whether the sums are in host memory (stages 2 and 3 only).
  bool keeps_on_host() const { return parts_.keeps_on_host(); }

  /// Sets a function that the boundary's backward calls with each final part (stages 2, 3). From the first
  /// call until clear(), another gradient for such a part is a UsageError.
  void on_final(std::function<void(const OwnedPart&)> listener) { parts_.on_final = std::move(listener); }
  /// Lists the parts, other than empty ones, for which a backward calls on_final()'s listener.
  std::vector<OwnedPart> final_parts() const;
  /// Returns a function that waits, on another thread, until gradient() has `part`, a final one. This object
  /// no longer waits for it.
  std::function<void()> hand_over(size_t group, const Interval& part);

  /// Notes that a backward has failed midway. The window has only part of its gradients. No step may use it
  /// before clear(), or resume_without_gradients() in a pause.
  void note_failure() { parts_.window.note_failure(); }
  bool has_failed() const { return parts_.window.has_failed(); }
  /// Forgets a failure. The caller must have dropped all gradients in the parameters, in a pause too.
  void forget_failure() { parts_.window.forget_failure(); }

  /// Returns whether gradient() holds the window's reduced gradients.
  bool has_result() const { return parts_.window.has_result(); }
  /// Returns whether a backward has begun and is not finished (a direct loss.backward()).
  bool is_open() const { return parts_.window.is_open(); }
  /// Starts a new accumulation window. If a backward was not finished, all ranks first complete the
  /// reductions that some may have begun.
  void clear();
  /// Rebuilds the buckets for later reductions, with at most `numel` elements each. Drops the
  /// rounding errors that were kept for the next reduction.
  /// Throws UsageError below 1 or within a backward.
  void set_bucket_numel(int64_t numel);
  /// Sets how later reductions turn sums into gradients. Throws UsageError within a backward.
  void set_averaging(const Averaging& averaging);
  /// Returns the last parameter (in flat order) whose gradient here, before the sum, is non-finite. Needs
  /// SumUse::trace_non_finite. Waits for the device.
  std::optional<ParamPlace> non_finite_nearest_loss() const { return parts_.sum.non_finite_nearest_loss(); }
  /// Returns the milliseconds that the host spent in sums over ranks since the last call.
  double take_host_time() { return parts_.sum.take_host_time(); }
  /// Multiplies the kept rounding errors of quantized sums; 0 forgets them.
  void scale_errors(double factor) { parts_.sum.scale_errors(factor); }
  /// Returns whether rounding errors of quantized sums are kept.
  bool keeps_errors() const { return parts_.sum.keeps_errors(); }
  /// Returns the kept rounding errors by name. Tensors are shared; empty before the first sum.
  NamedErrors errors() const { return parts_.sum.errors(); }
  /// Loads copies of errors() from a run of equally many ranks. Returns whether they fit the buckets and the
  /// nodes; if not, no errors are kept.
  bool load_errors(const NamedErrors& errors) { return parts_.sum.load_errors(errors); }
  /// Returns the bytes of gradients held between steps, without temporary buckets.
  int64_t bytes() const { return keeper_->bytes(); }

 private:
  /// Ends a backward as finish_backward() does, paused or not.
  void reduce_backward();
  /// Takes the gradients in the parameters as those of one backward.
  void take_from_params();
  void drop_from_params();
  void check_all_used() const;

  ReducerParts parts_;
  std::unique_ptr<GradKeeper> keeper_;
  std::function<bool()> is_foreign_;  // empty: no backward is foreign
};

std::unique_ptr<GradReducer> make_full_gradients(ParamStore& store, ZeroGroups ranks, ReducerOptions options,
                                                 SumUse use);
std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, ZeroGroups ranks,
                                                        ReducerOptions options, SumUse use);

}  // namespace deepspeed::zero
