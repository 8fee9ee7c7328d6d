// Tracks which parameters are live (whole or being gathered), and the rules for their release: limits, uses,
// and what the pass needs soon.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/access/live_set.h"
#include "deepspeed/zero/access/look_ahead.h"
#include "deepspeed/zero/access/param_table.h"

namespace deepspeed::zero {

/// Tracks the live parameters and changes their states. The caller holds a lock.
class LiveParams {
 public:
  /// max_numel: elements that may be live at one time. Parameters in use or persistent may exceed it.
  /// `params` and `look_ahead` must outlive this object.
  LiveParams(int64_t max_numel, const ParamTable& params, LookAhead& look_ahead)
      : set_(max_numel), params_(params), look_ahead_(look_ahead) {}
  LiveParams(const LiveParams&) = delete;
  LiveParams& operator=(const LiveParams&) = delete;

  /// Returns the number of live elements that count against the limit.
  int64_t numel() const { return set_.numel(); }
  /// Returns how many elements may still be gathered; negative if the limit is exceeded.
  int64_t room() const { return set_.room(); }
  /// Returns the most recently used parameter; null if none is live.
  Gatherable* latest() const { return set_.latest(); }
  /// Returns the least recently used parameter; null if none is live.
  Gatherable* oldest() const { return set_.empty() ? nullptr : set_.oldest(); }
  /// Calls `visit` with each live parameter, least recently used first. `visit` may release that parameter.
  template <class Visit>
  void for_each(Visit visit) {
    set_.for_each(visit);
  }

  /// Returns how many of the parameter's elements count against the limit. A copy of a leaf module's
  /// parameter counts as 0, since ranks have different copies.
  static int64_t counted_numel(const Gatherable& param);

  /// Adds a parameter being gathered, as most recently used. whole: the gathered values, if already there.
  void add(Gatherable& param, at::Tensor whole = {});
  /// Completes a gather: the storage gets the values in `param.whole`.
  void set_whole(Gatherable& param);
  /// Lets a whole parameter's storage point to `whole` instead of its former memory.
  void replace(Gatherable& param, at::Tensor whole);
  void note_used(Gatherable& param) { set_.note_used(param.place); }
  /// Releases the least recently used parameters until `numel` more elements fit, as far as possible.
  void make_room(int64_t numel);
  /// Empties a parameter's storage and drops the gathered data. Does nothing if another thread is destroying
  /// the parameter.
  void release(Gatherable& param);
  /// Drops the gathered data, and leaves the storage as it is.
  void drop(Gatherable& param) noexcept;

  /// Returns whether the parameter is whole and can be released now.
  bool may_go(const Gatherable& param) const;
  /// Returns whether the parameter can be released and the pass does not need it soon.
  bool is_done(const Gatherable& param) const;
  /// Returns whether the parameter can be released at the end of a pass.
  bool may_go_after_pass(const Gatherable& param) const {
    return may_go(param) && !look_ahead_.stays_for_backward(param);
  }

 private:
  void set_state(Gatherable& param, Gatherable::State state);

  LiveSet<Gatherable> set_;
  const ParamTable& params_;
  LookAhead& look_ahead_;
};

}  // namespace deepspeed::zero
