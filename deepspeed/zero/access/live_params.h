// Which parameters are whole now, or on their way, and the rules by which they go again: limits, uses and
// what the pass needs soon.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/access/live_set.h"
#include "deepspeed/zero/access/look_ahead.h"
#include "deepspeed/zero/access/param_table.h"

namespace deepspeed::zero {

/// Every change of a parameter's state is made here. The caller holds a lock.
class LiveParams {
 public:
  /// max_numel: elements that may be live at one time; what is in use or persistent may exceed it. `params`
  /// and `look_ahead` must outlive it.
  LiveParams(int64_t max_numel, const ParamTable& params, LookAhead& look_ahead)
      : set_(max_numel), params_(params), look_ahead_(look_ahead) {}
  LiveParams(const LiveParams&) = delete;
  LiveParams& operator=(const LiveParams&) = delete;

  /// Elements that are whole or on their way.
  int64_t numel() const { return set_.numel(); }
  /// Elements that may be gathered; below 0 where the limit is exceeded.
  int64_t room() const { return set_.room(); }
  /// The parameter that was used last; null where nothing is live.
  Gatherable* latest() const { return set_.latest(); }
  /// The parameter whose use lies back furthest; null where nothing is live.
  Gatherable* oldest() const { return set_.empty() ? nullptr : set_.oldest(); }
  /// Calls `visit` with each live parameter, the oldest first. It may release that one.
  template <class Visit>
  void for_each(Visit visit) {
    set_.for_each(visit);
  }

  /// What the parameter takes of the limit. A copy of a unit's parameter takes nothing, since ranks have
  /// different ones.
  static int64_t counted_numel(const Gatherable& param);

  /// Adds a parameter that is on its way, as most recently used. whole: its values where they are there
  /// already.
  void add(Gatherable& param, at::Tensor whole = {});
  /// Ends the way of a parameter: its storage gets the values in `param.whole`.
  void set_whole(Gatherable& param);
  /// Gives a whole parameter other memory.
  void replace(Gatherable& param, at::Tensor whole);
  void note_used(Gatherable& param) { set_.note_used(param.place); }
  /// Releases the least recently used until `numel` more elements fit, or nothing may go.
  void make_room(int64_t numel);
  /// Empties the storage of a parameter, and forgets what was gathered. Does nothing where another thread
  /// destroys the parameter.
  void release(Gatherable& param);
  /// Forgets what was gathered, and leaves the storage as it is.
  void drop(Gatherable& param) noexcept;

  /// Whether the parameter is whole and nobody needs it whole now.
  bool may_go(const Gatherable& param) const;
  /// Returns whether the parameter may go, and nothing will use it soon.
  bool is_done(const Gatherable& param) const;
  /// Returns whether the parameter may go at the end of a pass.
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
