// The state of torch's autocast in a thread, for a forward that runs again in another thread.
#pragma once

#include <array>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace deepspeed::activation {

/// Holds torch's autocast settings. These are the switch and the dtype of each device, and whether casts are
/// cached.
struct AutocastState {
  struct OfDevice {
    c10::DeviceType device;
    bool enabled;
    c10::ScalarType dtype;
  };

  static AutocastState now();
  void set() const;

  std::array<OfDevice, 2> devices;
  bool keeps_casts;
};

/// Sets an autocast state while this object exists. Its end drops the casts that were cached meanwhile,
/// unless an autocast scope of torch encloses it.
class RepeatAutocast {
 public:
  explicit RepeatAutocast(const AutocastState& state);
  ~RepeatAutocast();
  RepeatAutocast(const RepeatAutocast&) = delete;
  RepeatAutocast& operator=(const RepeatAutocast&) = delete;

 private:
  AutocastState before_;
};

}  // namespace deepspeed::activation
