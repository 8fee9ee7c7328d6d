#include "deepspeed/zero/prefetch/trace_window.h"

namespace deepspeed::zero {

void TraceWindow::follow(const UseTrace& trace, const Visit& leave, const Visit& enter) {
  if (max_numel_ == 0) return;
  if (!is_open_) {
    is_open_ = true;
    begin_ = end_ = trace.position();
    numel_ = 0;
  }
  while (begin_ < trace.position()) move_begin(trace, leave, enter);
  extend(trace, enter);
}

void TraceWindow::move_begin(const UseTrace& trace, const Visit& leave, const Visit& enter) {
  const size_t place = begin_++;
  if (place == end_) {  // it was empty: the use was too large for it
    end_ = begin_;
    return;
  }
  leave(place);
  const auto again = trace.next(place);
  if (again && *again < end_) return enter(*again);
  numel_ -= trace.entry(place).numel;
}

void TraceWindow::extend(const UseTrace& trace, const Visit& enter) {
  for (; end_ < trace.size(); ++end_) {
    const auto previous = trace.previous(end_);
    if (previous && *previous >= begin_) continue;  // already in the window
    const int64_t numel = trace.entry(end_).numel;
    const bool is_forced = holds_next_ && end_ == begin_;
    if (numel_ + numel > max_numel_ && !is_forced) return;
    numel_ += numel;
    enter(end_);
  }
}

}  // namespace deepspeed::zero
