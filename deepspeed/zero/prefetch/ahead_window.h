// Holds the parameters that a pass uses next by its trace, with what a pool needs to know of each. It is a
// window over the trace with a slot for each parameter.
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

/// Keeps the slots of the parameters in a TraceWindow up to date. Not thread-safe.
class AheadWindow {
 public:
  /// Holds functions that look up keys and parameters in the pool.
  struct Source {
    std::function<size_t(uint64_t key)> num_params;                // how many parameters a key has at most
    std::function<std::vector<Gatherable*>(uint64_t key)> params;  // a key's parameters, in order
    std::function<AheadSlots::Item(const Gatherable&)> item;
  };

  /// max_numel, holds_next: as in TraceWindow.
  AheadWindow(int64_t max_numel, bool holds_next, Source source)
      : is_used_(max_numel > 0), window_(max_numel, holds_next), source_(std::move(source)) {}

  /// Moves the window to the trace's position. Null: no pass follows a trace, so nothing is known.
  void follow(const UseTrace* trace);
  void close();

  /// Updates a parameter's slot by Source::item after the parameter's state has changed.
  void recount(const Gatherable& param);
  /// Replaces the parameter at the next use of `key`, if in the window, by `param`.
  void replace(const UseTrace* trace, uint64_t key, Gatherable& param);
  /// Removes a destroyed parameter.
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
  std::vector<size_t> slot_begin_;   // by place, with the end of all
  std::vector<Gatherable*> params_;  // by slot; null: not in the window
  std::unordered_map<const Gatherable*, size_t> slot_of_;
};

}  // namespace deepspeed::zero
