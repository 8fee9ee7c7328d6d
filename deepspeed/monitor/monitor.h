// Monitors receive the scalars of a training, and show or store them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::monitor {

/// Holds a value at a point of the training.
struct Event {
  std::string name;  // "Train/Samples/lr"
  double value = 0.0;
  int64_t step = 0;  // in an engine's events: the samples trained so far
};

/// Receives events, in the order in which they happen.
class DEEPSPEED_API Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void write_events(const std::vector<Event>& events) = 0;
};

}  // namespace deepspeed::monitor
