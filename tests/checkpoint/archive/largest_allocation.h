// The largest piece of memory that is asked for at once through operator new, in this test program.
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
};

}  // namespace deepspeed::testing
