// The largest piece of memory that is asked for at once through operator new in this test program, and the
// most that it held at any moment.
#pragma once

#include <cstddef>

namespace deepspeed::testing {

/// Watches for as long as it lives; one at a time.
class LargestAllocation {
 public:
  LargestAllocation();
  ~LargestAllocation();
  LargestAllocation(const LargestAllocation&) = delete;
  LargestAllocation& operator=(const LargestAllocation&) = delete;

  size_t bytes() const;
  /// The most bytes that were held at one moment, beyond those at the beginning.
  size_t peak_bytes() const;

 private:
  size_t held_before_;
};

}  // namespace deepspeed::testing
