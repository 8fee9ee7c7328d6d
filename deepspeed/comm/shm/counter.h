// A number in shared memory that one rank counts on and others wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace deepspeed::comm::shm {

/// Counts on, and around after 2^32: two counts are compared as if they were less than 2^31 apart. Lies alone
/// in a line of the caches.
struct alignas(64) Counter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  /// Sets the count. What was written before is seen by who waits for it.
  void advance(uint32_t to);
  bool reached(uint32_t to) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - to) >= 0;
  }
  /// Waits a moment, in which a rank that runs gets far, without giving the core away.
  bool spin_until(uint32_t to) const;
  /// Sleeps until the count is reached, at most `limit`; wake() ends it early.
  bool sleep_until(uint32_t to, std::chrono::milliseconds limit);
  /// Wakes all that sleep, so that they look around.
  void wake();
};

}  // namespace deepspeed::comm::shm
