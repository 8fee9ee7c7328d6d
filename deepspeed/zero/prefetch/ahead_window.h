// Knows the parameters that a pass uses next by its trace, with what a pool wants to know of each: a
// window over the trace, with a slot for each parameter in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deepspeed/zero/prefetch/ahead_slots.h"
#include "deepspeed/zero/prefetch/trace_window.h"

namespace deepspeed::zero {

struct Gatherable;

/// Not thread-safe by itself.
class AheadWindow {
 public:
  /// The questions that the window asks the pool.
  struct Source {
    std::function<size_t(uint64_t key)> num_params;                // that the key can have, at most
    std::function<std::vector<Gatherable*>(uint64_t key)> params;  // that it has, in order
    std::function<AheadSlots::Item(const Gatherable&)> item;
  };

  /// max_numel and holds_next are those of TraceWindow.
  AheadWindow(int64_t max_numel, bool holds_next, Source source)
      : is_used_(max_numel > 0), window_(max_numel, holds_next), source_(std::move(source)) {}

  /// Moves the window to the position of the trace. With null no pass follows a trace, so nothing is known.
  void follow(const UseTrace* trace);
  void close();

  /// Asks for a parameter's item again, after its state has changed.
  void recount(const Gatherable& param);
  /// Puts `param` in the place of the former one of `key`.
  void replace(const UseTrace* trace, uint64_t key, Gatherable& param);
  /// Removes a parameter that is gone.
  void forget(const Gatherable& param);

  const AheadSlots& slots() const { return slots_; }
  Gatherable& param(size_t slot) const { return *params_[slot]; }

 private:
  void open(const UseTrace& trace);
  void enter(size_t place, uint64_t key);
  void leave(size_t place);
  void put(size_t slot, Gatherable& param);
  void clear(size_t slot);

  bool is_used_;
  TraceWindow window_;
  Source source_;
  AheadSlots slots_;
  std::vector<size_t> slot_begin_;   // by place, and the end of all
  std::vector<Gatherable*> params_;  // by slot; null: not in the window
  std::unordered_map<const Gatherable*, size_t> slot_of_;
};

}  // namespace deepspeed::zero
