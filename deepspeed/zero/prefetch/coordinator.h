// What comes next in a pass and what stays whole after its use: follows the traces of the passes of a model,
// one a kind of pass.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "deepspeed/zero/prefetch/access_mode.h"
#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

/// Makes the same decisions on every rank, so that all ranks prefetch the same parameters. The caller holds a
/// lock.
class Coordinator {
 public:
  /// max_reuse_distance: a parameter stays whole between two uses with at most so many elements of other uses
  /// between them.
  explicit Coordinator(int64_t max_reuse_distance) : max_reuse_distance_(max_reuse_distance) {}

  void begin_pass(AccessMode mode);
  void end_pass();
  /// Notes a use; returns whether the pass leaves the trace here that it has followed so far.
  bool note_use(uint64_t key, int64_t numel);
  /// The trace that the pass follows; null where it follows none.
  const UseTrace* followed() const;
  /// Returns the keys with which the next evaluation begins, where the last pass was one: evaluations follow
  /// one another, so their beginning can be gathered ahead.
  std::vector<uint64_t> next_pass(int64_t max_numel) const;
  /// Whether the parameter stays whole after its latest use. Without a trace all do, as long as there is
  /// room.
  bool stays(uint64_t key) const;
  /// Whether the parameter stays whole from the end of a forward for the backward that follows: it is used
  /// last in the forward that runs, or was in the one that ended last.
  bool stays_for_backward(uint64_t key) const;
  /// Whether a backward runs whose trace does not use the parameter again.
  bool is_over_in_backward(uint64_t key) const;

 private:
  int64_t max_reuse_distance_;
  std::array<UseTrace, 5> traces_;  // by mode
  UseTrace* current_ = nullptr;
  bool evaluated_last_ = false;
  AccessMode mode_ = AccessMode::kAny;  // of the current pass, or the latest
};

}  // namespace deepspeed::zero
