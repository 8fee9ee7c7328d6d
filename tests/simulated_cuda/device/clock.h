// A vector clock: how far each stream was when something happened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepspeed::simulated {

/// Ticks of streams, by their index; what is not held is 0.
struct Clock {
  std::vector<uint64_t> ticks;

  uint64_t of(size_t stream) const { return stream < ticks.size() ? ticks[stream] : 0; }

  void join(const Clock& other) {
    if (ticks.size() < other.ticks.size()) ticks.resize(other.ticks.size());
    for (size_t i = 0; i < other.ticks.size(); ++i) ticks[i] = std::max(ticks[i], other.ticks[i]);
  }

  /// Advances one stream and returns its new tick.
  uint64_t tick(size_t stream) {
    if (ticks.size() <= stream) ticks.resize(stream + 1);
    return ++ticks[stream];
  }
};

}  // namespace deepspeed::simulated
