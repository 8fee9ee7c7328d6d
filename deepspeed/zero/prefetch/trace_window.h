// A window over what a trace says comes next, up to a number of elements. It moves on with the pass. Over a
// whole pass this takes as many steps as the trace has uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

class TraceWindow {
 public:
  /// max_numel: the most elements that the window holds, each key counted once; 0: none. holds_next: the next
  /// use is in the window whatever its size, unless max_numel is 0.
  TraceWindow(int64_t max_numel, bool holds_next) : max_numel_(max_numel), holds_next_(holds_next) {}

  /// Gets the place, in the trace, of a key's first use in the window.
  using Visit = std::function<void(size_t place)>;

  /// Moves the window to the position of the trace that a pass follows. Calls `leave` and `enter` for keys
  /// that leave or enter it. A key that leaves may enter again with its next use.
  void follow(const UseTrace& trace, const Visit& leave, const Visit& enter);
  /// Empties the window. The next follow() starts at the trace's position.
  void close() { is_open_ = false; }
  bool is_open() const { return is_open_; }
  /// Returns whether the window has the use at `place`, first of its key or not. `place` must not be before
  /// the position.
  bool reaches(size_t place) const { return is_open_ && place < end_; }

 private:
  void move_begin(const UseTrace& trace, const Visit& leave, const Visit& enter);
  void extend(const UseTrace& trace, const Visit& enter);

  int64_t max_numel_;
  bool holds_next_;
  bool is_open_ = false;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t numel_ = 0;  // of the keys between them, each counted once
};

}  // namespace deepspeed::zero
