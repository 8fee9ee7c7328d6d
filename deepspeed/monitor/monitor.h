// Scalars of a training go to monitors, who show or keep them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::monitor {

/// A value at a point of the training.
struct Event {
  std::string name;  // "Train/Samples/lr"
  double value = 0.0;
  int64_t step = 0;  // the samples trained so far, in events of an engine
};

/// Takes events, in the order in which they happen.
class DEEPSPEED_API Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void write_events(const std::vector<Event>& events) = 0;
};

}  // namespace deepspeed::monitor
