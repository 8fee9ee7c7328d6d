// The state of torch's autocast in a thread, for a forward that runs again in another one.
#pragma once

#include <array>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace deepspeed::activation {

/// Holds which devices autocast is on for, to which dtypes, and whether it keeps casts.
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

/// Sets a state of autocast while it lives. Casts that are kept inside go at its end, unless it stands inside
/// of autocast's own scope.
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
