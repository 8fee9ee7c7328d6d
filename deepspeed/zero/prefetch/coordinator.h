// Follows the traces of a model's passes, one for each kind. It knows what comes next in a pass and what
// stays whole after its use.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "deepspeed/zero/prefetch/access_mode.h"
#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

/// Decides what passes gather ahead and keep whole, equally on every rank. The caller holds a lock.
class Coordinator {
 public:
  /// max_reuse_distance: a parameter stays whole if at most this many elements are used before its next use.
  explicit Coordinator(int64_t max_reuse_distance) : max_reuse_distance_(max_reuse_distance) {}

  void begin_pass(AccessMode mode);
  void end_pass();
  /// Notes the pass's next use. Returns whether the pass has followed its trace so far and differs from it
  /// here.
  bool note_use(uint64_t key, int64_t numel);
  /// Returns the trace that the pass follows; null if it follows none.
  const UseTrace* followed() const;
  /// Returns the keys with which the next evaluation begins, of at most `max_numel` elements together.
  /// Returns none unless the last pass was an evaluation. Evaluations follow one another, so their beginning
  /// can be gathered ahead.
  std::vector<uint64_t> next_pass(int64_t max_numel) const;
  /// Returns whether the parameter stays whole after its latest use. Without a trace to follow, all
  /// parameters stay, as long as there is room.
  bool stays(uint64_t key) const;
  /// Returns whether the parameter stays whole after a forward for the following backward. It stays if at
  /// most max_reuse_distance elements are used until the backward uses it. If the forward still runs, it must
  /// have just used the parameter.
  bool stays_for_backward(uint64_t key) const;
  /// Returns whether a backward runs that, by its trace, does not use the parameter again.
  bool is_over_in_backward(uint64_t key) const;

 private:
  int64_t max_reuse_distance_;
  std::array<UseTrace, 5> traces_;  // by mode
  UseTrace* current_ = nullptr;
  bool evaluated_last_ = false;
  AccessMode mode_ = AccessMode::kAny;  // of the current or latest pass
};

}  // namespace deepspeed::zero
