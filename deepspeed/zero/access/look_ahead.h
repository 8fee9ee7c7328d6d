// Looks ahead in a pass: which parameters it uses next, what to gather and read from a disk before, and what
// stays whole for a later use.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/access/param_table.h"
#include "deepspeed/zero/prefetch/access_mode.h"
#include "deepspeed/zero/prefetch/ahead_window.h"
#include "deepspeed/zero/prefetch/coordinator.h"

namespace deepspeed::zero {

/// Predicts which parameters a pass uses next. Changes no parameter's state. All ranks decide the same. The
/// caller holds a lock.
class LookAhead {
 public:
  /// read_ahead_numel: elements of shards read from a disk ahead of their gathers. `params` must outlive this
  /// object.
  LookAhead(const config::ParamGatherConfig& keys, int64_t read_ahead_numel, const ParamTable& params);
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  void begin_pass(AccessMode mode);
  void end_pass();
  bool is_in_pass() const { return is_in_pass_; }

  /// Notes that the pass uses the parameter or its unit next.
  void note_use(const Gatherable& param);
  /// Returns the parameters to gather now, ahead of their use: at most `room` elements. Starts disk reads for
  /// them.
  std::vector<Gatherable*> to_gather(int64_t room);
  /// Starts reading later gathers' shards from a disk, as far as there are buffers.
  void read_ahead();
  /// Starts reading the shards that the next evaluation uses first.
  void read_for_next_pass();

  /// Updates what is known of the parameter after its state has changed.
  void recount(const Gatherable& param);
  /// Replaces an earlier copy of the same parameter and dtype by `copy`.
  void replace(Gatherable& copy);
  void forget(const Gatherable& param) noexcept;
  /// Forgets which parameters come next and their states. The next to_gather() looks again.
  void look_anew();

  /// Returns whether the parameter or unit `key` stays whole until its next use. Without an earlier pass to
  /// follow, all parameters stay whole as long as there is room.
  bool stays(uint64_t key) const { return coordinator_.stays(key); }
  /// Returns whether earlier passes show that the running one uses `key` again soon.
  bool is_used_soon(uint64_t key) const { return coordinator_.followed() != nullptr && stays(key); }
  /// Returns whether the parameter stays whole after a forward for the following backward.
  bool stays_for_backward(const Gatherable& param) const;
  /// Returns whether earlier backwards show that the running one does not use `key` again.
  bool is_over_in_backward(uint64_t key) const { return coordinator_.is_over_in_backward(key); }

 private:
  AheadWindow make_window(int64_t max_numel, bool holds_next, AheadSlots::Item (*item)(const Gatherable&));

  const ParamTable& params_;
  const bool gathers_one_by_one_;
  const bool warns_of_new_order_;
  const int64_t read_ahead_numel_;
  bool is_in_pass_ = false;
  Coordinator coordinator_;
  AheadWindow to_gather_;
  AheadWindow to_read_;  // from a disk
};

}  // namespace deepspeed::zero
