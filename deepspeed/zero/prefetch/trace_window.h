// What a trace says comes next, up to a number of elements: a window that moves on with the pass. Over a
// whole pass that takes as many steps as the trace has uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "deepspeed/zero/prefetch/use_trace.h"

namespace deepspeed::zero {

class TraceWindow {
 public:
  /// max_numel: of all that is in it together, each key counted once; 0: nothing. holds_next: what comes next
  /// is in it however large it is, unless max_numel is 0.
  TraceWindow(int64_t max_numel, bool holds_next) : max_numel_(max_numel), holds_next_(holds_next) {}

  /// Called with the place of a use: of each key in the window its first one there.
  using Visit = std::function<void(size_t place)>;

  /// Moves to the position of the trace, which a pass follows. A key that leaves may come again with its next
  /// use.
  void follow(const UseTrace& trace, const Visit& leave, const Visit& enter);
  /// It is empty; follow() begins anew, wherever the trace is.
  void close() { is_open_ = false; }
  bool is_open() const { return is_open_; }
  /// Whether the use at `place`, which is not before the position, is in it, be it as the first of its key.
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
