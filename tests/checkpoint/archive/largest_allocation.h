// Measures the largest allocation through operator new in this test program, and the most memory held at any
// moment.
#pragma once

#include <cstddef>

namespace deepspeed::testing {

/// Measures during its lifetime; only one may exist at a time.
class LargestAllocation {
 public:
  LargestAllocation();
  ~LargestAllocation();
  LargestAllocation(const LargestAllocation&) = delete;
  LargestAllocation& operator=(const LargestAllocation&) = delete;

  size_t bytes() const;
  /// Returns the most bytes held at one moment, beyond those at the beginning.
  size_t peak_bytes() const;

 private:
  size_t held_before_;
};

}  // namespace deepspeed::testing
