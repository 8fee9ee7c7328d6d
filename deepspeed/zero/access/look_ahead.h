// Looks ahead in a pass: which parameters it uses next, what to gather and to read from a disk before that,
// and what stays whole for a later use.
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

/// Reads the states of parameters and changes none. All ranks decide alike. The caller holds a lock.
class LookAhead {
 public:
  /// read_ahead_numel: elements whose shards are read from a disk ahead of their gathers. `params` must
  /// outlive it.
  LookAhead(const config::ParamGatherConfig& keys, int64_t read_ahead_numel, const ParamTable& params);
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  void begin_pass(AccessMode mode);
  void end_pass();
  bool is_in_pass() const { return is_in_pass_; }

  /// Notes that the pass uses the parameter next, or its unit.
  void note_use(const Gatherable& param);
  /// Returns what to gather now, ahead of its use: at most `room` elements. Starts reads from a disk for it.
  std::vector<Gatherable*> to_gather(int64_t room);
  /// Starts reading the shards of what is gathered after that, as far as there are buffers.
  void read_ahead();
  /// Starts reading the shards that the next evaluation uses first.
  void read_for_next_pass();

  /// Looks at the parameter again, whose state has changed.
  void recount(const Gatherable& param);
  /// Puts a new copy in the place of the former one of its key.
  void replace(Gatherable& copy);
  void forget(const Gatherable& param) noexcept;
  /// Forgets what it has seen of all parameters. The next to_gather() looks again.
  void look_anew();

  /// Whether the parameter or unit of this key stays whole between its latest use and the next. Without a
  /// trace all of them stay, as long as there is room.
  bool stays(uint64_t key) const { return coordinator_.stays(key); }
  /// Whether the trace of the pass says that it is used again soon.
  bool is_used_soon(uint64_t key) const { return coordinator_.followed() != nullptr && stays(key); }
  /// Whether the parameter stays whole from the end of a forward for the backward that follows.
  bool stays_for_backward(const Gatherable& param) const;
  /// Whether a backward runs whose trace does not use this key again.
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
