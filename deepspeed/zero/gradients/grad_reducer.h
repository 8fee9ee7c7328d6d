// Takes gradients as backward produces them, sums them over the ranks and keeps what this rank needs.
//
// Two keepers: full_gradients.cpp (stage 0: a whole flat buffer, reduced once at the accumulation boundary)
// and partitioned_gradients.cpp (only the own part is kept; reduced at the boundary at stage 1, at every
// backward at stages 2 and 3).
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

/// Not thread-safe by itself: GradHooks calls it under one lock.
class GradReducer {
 public:
  using MakeKeeper = std::unique_ptr<GradKeeper> (*)(ReducerParts& parts);

  /// always_reduces: every backward reduces, also those before the boundary. `store` must outlive it.
  GradReducer(ParamStore& store, ZeroGroups ranks, ReducerOptions options, SumUse use, bool always_reduces,
              MakeKeeper make_keeper);
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Says whether the backward that runs, or comes next, is the last one before a step.
  void set_boundary(bool boundary) { parts_.window.set_boundary(boundary); }
  bool boundary() const { return parts_.window.is_boundary(); }

  /// Takes the gradient of a parameter, which was accumulated into its grad. While paused it stays there.
  void on_gradient(size_t group, size_t param);
  /// Reduces the gradients that backwards before the boundary have only summed here. Does nothing where the
  /// last backward was at the boundary.
  void complete_window();

  /// Stage 0, in a window without a backward: what the program has put into the parameters' grads, alike on
  /// all ranks, are the window's reduced gradients. Returns whether there is any.
  bool take_given_grads();

  /// Says that this backward gives no more gradients to a unit's parameters; missing ones count as zeros. All
  /// ranks call it at the same place among their collectives. finish_backward() does it for the units for
  /// which it was not called.
  void on_unit_done(size_t unit);

  /// Throws UsageError within a backward.
  void pause();
  bool is_paused() const { return parts_.window.is_paused(); }
  /// Ends the pause and takes the gradients that came meanwhile, as those of one backward.
  void resume();
  /// Ends the pause and forgets the gradients that came meanwhile, and the window. Talks to no rank.
  void resume_without_gradients();

  /// Ends a backward that has returned: missing gradients count as zeros. At the boundary all reductions are
  /// done afterwards. Does nothing while paused.
  void finish_backward();

  /// Leaves gradients of a backward that nobody has announced in the parameters' grad until
  /// finish_backward(), so that the program may drop or change them there, alike on all ranks.
  void leave_unannounced() { parts_.window.leave_unannounced(); }
  /// Leaves, as leave_unannounced() does, those of unannounced backwards for which `is_foreign` returns true:
  /// it is called in them.
  void leave_foreign(std::function<bool()> is_foreign) { is_foreign_ = std::move(is_foreign); }
  /// Announces a backward, until the end of the scope.
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
  /// Forgets an unannounced backward of which the program has left no gradient in the parameters.
  void forget_dropped();

  /// The reduced gradient of the owned interval of a group, valid between the boundary's finish_backward()
  /// and clear().
  at::Tensor gradient(size_t group) const { return keeper_->gradient(group); }
  /// Returns the elements `part` of gradient(group). Where gradients are on their way to the host, it waits
  /// for these alone.
  at::Tensor gradient(size_t group, const Interval& part) const { return keeper_->gradient(group, part); }
  /// What gradient(group) holds between two backwards of a window, reduced or not yet; undefined before its
  /// first gradient.
  at::Tensor sums(size_t group) const;
  /// What this rank alone has summed of a parameter's gradient, in its shape; undefined where there is none,
  /// and where it went to other ranks.
  at::Tensor local_gradient(size_t group, size_t param) const;
  /// Keeps gradients this rank's own while `keeps` says so, which does not change within a window: stages 0
  /// and 1.
  void keep_local(std::function<bool()> keeps) { parts_.keeps_local = std::move(keeps); }
  /// What this rank alone has summed of a group in this window, (padded numel) in flat order; after a
  /// boundary's backward that kept it.
  at::Tensor local_gradients(size_t group) const;
  /// Replaces gradient(), until clear(), by the owned part of `flat`: as local_gradients() has it, in fp32.
  void set_gradients(size_t group, at::Tensor flat);
  /// Whether the sums are in host memory, which stages 2 and 3 alone do.
  bool keeps_on_host() const { return parts_.keeps_on_host(); }

  /// Stages 2 and 3: calls `listener`, in the boundary's backward, with each part of what this rank keeps as
  /// soon as nothing is added to it any more. From the first call to clear() another gradient of such a part
  /// is a UsageError.
  void on_final(std::function<void(const OwnedPart&)> listener) { parts_.on_final = std::move(listener); }
  /// Lists the parts with which on_final()'s listener is called in a backward.
  std::vector<OwnedPart> final_parts() const;
  /// Returns a function, for another thread to call, that waits until a final part has its values in
  /// gradient(). This object does not wait for that part any more.
  std::function<void()> hand_over(size_t group, const Interval& part);

  /// Says that a backward has failed in its middle: the window holds a part of its gradients, so that no step
  /// may use it, until clear(), or resume_without_gradients() of a pause.
  void note_failure() { parts_.window.note_failure(); }
  bool has_failed() const { return parts_.window.has_failed(); }
  /// Forgets a failure. It is for who has dropped all gradients in the parameters, in a pause too.
  void forget_failure() { parts_.window.forget_failure(); }

  /// Whether gradient() holds the reduced gradients of the window.
  bool has_result() const { return parts_.window.has_result(); }
  /// Whether a backward has begun and was not finished (a direct loss.backward()).
  bool is_open() const { return parts_.window.is_open(); }
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
  std::optional<ParamPlace> first_non_finite() const { return parts_.sum.first_non_finite(); }
  /// Returns the milliseconds that the host has spent in sums over ranks since the last call.
  double take_host_time() { return parts_.sum.take_host_time(); }
  /// Multiplies what quantized sums have kept of gradients for later ones; 0 forgets it.
  void scale_errors(double factor) { parts_.sum.scale_errors(factor); }
  /// Whether something is kept so.
  bool keeps_errors() const { return parts_.sum.keeps_errors(); }
  /// Returns it by name; shared, empty before the first sum.
  NamedErrors errors() const { return parts_.sum.errors(); }
  /// Takes copies of errors() of a run with as many ranks. Returns whether they fit the buckets and the
  /// nodes; where not, nothing is kept.
  bool load_errors(const NamedErrors& errors) { return parts_.sum.load_errors(errors); }
  /// Bytes of gradients held between steps, transient buckets not counted.
  int64_t bytes() const { return keeper_->bytes(); }

 private:
  /// Ends a backward as finish_backward() does, whether paused or not.
  void reduce_backward();
  /// Takes the gradients that are in the parameters, as those of one backward.
  void take_from_params();
  void drop_from_params();
  void check_all_used() const;

  ReducerParts parts_;
  std::unique_ptr<GradKeeper> keeper_;
  std::function<bool()> is_foreign_;  // empty: none is
};

std::unique_ptr<GradReducer> make_full_gradients(ParamStore& store, ZeroGroups ranks, ReducerOptions options,
                                                 SumUse use);
std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, ZeroGroups ranks,
                                                        ReducerOptions options, SumUse use);

}  // namespace deepspeed::zero
