// What comes next in a pass and what stays whole after its use: follows the traces of the passes of a model,
// one a kind of pass.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

/// What an access window is for: passes of one kind use the parameters in one order, as a rule. kTraining is
/// a forward and its backward in one window; kAny says nothing.
enum class AccessMode { kAny, kTraining, kForward, kBackward, kEvaluation };

/// Of all ranks the same, so that all gather the same ahead. Not thread-safe by itself.
class Coordinator {
 public:
  /// max_reuse_distance: what is used again after at most so many elements of other uses stays whole until
  /// then.
  explicit Coordinator(int64_t max_reuse_distance) : max_reuse_distance_(max_reuse_distance) {}

  void begin_pass(AccessMode mode);
  void end_pass();
  /// Returns whether the pass, which followed a trace so far, leaves it here.
  bool note_use(uint64_t key, int64_t numel);
  /// The trace that the pass follows; null where it follows none.
  const UseTrace* followed() const;
  /// What a further evaluation begins with, where the last pass was one: they follow one another.
  std::vector<uint64_t> next_pass(int64_t max_numel) const;
  /// Whether it stays whole after its latest use; without a trace all does, as long as there is room.
  bool stays(uint64_t key) const;
  /// Whether it is used last in a forward, or was in the forward that ended last, and stays whole for the
  /// backward that follows.
  bool stays_for_backward(uint64_t key) const;
  /// Whether a backward runs that does not use it again, as far as a trace says so.
  bool is_over_in_backward(uint64_t key) const;

 private:
  int64_t max_reuse_distance_;
  std::array<UseTrace, 5> traces_;  // by mode
  UseTrace* current_ = nullptr;
  bool evaluated_last_ = false;
  AccessMode mode_ = AccessMode::kAny;  // of the current pass, or the latest
};

}  // namespace deepspeed::zero
