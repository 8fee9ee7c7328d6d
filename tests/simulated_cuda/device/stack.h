// Where in the program something happened.
#pragma once

#include <string>

namespace deepspeed::simulated {

/// The calls of a thread at one moment: cheap to take, and read only where something is reported.
class Stack {
 public:
  static Stack here();

  /// Returns the calls of the program's own code, a line each. Those of torch, the system and this device are
  /// left out.
  std::string text(int most = 12) const;
  /// Returns a text that is equal for equal calls.
  std::string key() const;

 private:
  static constexpr int kFrames = 40;
  void* frames_[kFrames];
  int depth_ = 0;
};

}  // namespace deepspeed::simulated
