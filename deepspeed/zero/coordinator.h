// What is gathered ahead of its use and what stays whole after it: follows the traces of the passes of a
// model, one a kind of pass.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "deepspeed/zero/use_trace.h"

namespace deepspeed::zero {

/// What an access window is for: passes of one kind use the parameters in one order, as a rule. kTraining is
/// a forward and its backward in one window; kAny says nothing.
enum class AccessMode { kAny, kTraining, kForward, kBackward, kEvaluation };

/// Of all ranks the same, so that all gather the same ahead. Not thread-safe by itself.
class Coordinator {
 public:
  /// prefetch_numel: elements that are on their way or whole ahead of their use. max_reuse_distance: what is
  /// used again after at most so many elements of other uses stays whole until then.
  Coordinator(int64_t prefetch_numel, int64_t max_reuse_distance)
      : prefetch_numel_(prefetch_numel), max_reuse_distance_(max_reuse_distance) {}

  void begin_pass(AccessMode mode);
  void end_pass();
  /// Returns whether the pass, which followed a trace so far, leaves it here.
  bool note_use(uint64_t key, int64_t numel);
  /// In the order of their use: at least what comes next, however large it is.
  std::vector<uint64_t> to_prefetch() const;
  /// What comes next, as long as all of it together has at most `max_numel` elements.
  std::vector<uint64_t> ahead(int64_t max_numel) const;
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
  int64_t prefetch_numel_;
  int64_t max_reuse_distance_;
  std::array<UseTrace, 5> traces_;  // by mode
  UseTrace* current_ = nullptr;
  bool evaluated_last_ = false;
  AccessMode mode_ = AccessMode::kAny;  // of the current pass, or the latest
};

}  // namespace deepspeed::zero
