// The shared control block of one group: what its ranks count, say and copy for each other. All ranks map and
// write it; tensors in arenas are read by peers alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace deepspeed::comm::shm {

/// Counts on, and around after 2^32: two counts are compared as if they were less than 2^31 apart. Lies alone
/// in a line of the caches.
struct alignas(64) Counter {
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "several processes use it");
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

constexpr uint32_t kNumPosts = 64;  // that ranks may be apart
constexpr uint64_t kStaged = ~uint64_t{0};

/// Says where a rank's input of one operation can be read. `posted` hands it over, and `done` of all others
/// gives its place back.
struct Post {
  uint64_t call = 0;         // what is called: alike on ranks that call the same
  uint64_t bytes = 0;        // of the input
  uint64_t offset = 0;       // in the arena; or kStaged: it comes in pieces
  uint32_t first_piece = 0;  // of `staged`, where it is staged
};

/// Says whether a rank takes part, and whom it blames where it gave up.
enum class Presence : uint32_t { kHere, kLeft, kGaveUp };

/// What one rank writes and all others read.
struct RankBlock {
  Counter posted;   // operations whose post is in the ring
  Counter reduced;  // operations whose sum of this rank's part is in its own memory
  Counter staged;   // pieces that were copied into the stage
  Counter done;     // operations for which this rank reads nothing more
  alignas(64) std::atomic<Presence> presence{Presence::kHere};
  std::atomic<int> blamed_rank{-1};
  std::atomic<int> blamed_process{0};
  Post ring[kNumPosts];

  /// Returns the presence after all that was read before, of the rank's memory or of the system. A rank that
  /// is here afterwards had not used its memory again before. A load could be made ahead of what stands
  /// before it, so this writes.
  Presence presence_after_reading() {
    auto said = Presence::kHere;
    presence.compare_exchange_strong(said, Presence::kHere);
    return said;
  }
  /// Says once that the rank takes no part any more. Its memory may be used again afterwards.
  void leave_as(Presence how) {
    auto here = Presence::kHere;
    presence.compare_exchange_strong(here, how);
  }
};

/// Shows the control block at an address.
class Slot {
 public:
  Slot(char* base, int size) : base_(base), size_(size) {}
  static size_t bytes(int size);
  /// Returns the bytes of half a stage: a rank fills one half while its peers read the other.
  static size_t stage_bytes(int size);
  /// Makes the block in fresh memory. One rank does, before any other looks.
  void construct() const;

  int size() const { return size_; }
  RankBlock& of(int rank) const;
  /// Counts the pieces of `source` that `reader` has read.
  Counter& read_of(int reader, int source) const;
  /// Returns the half of a rank's stage that a piece goes to.
  char* stage(int rank, uint32_t piece) const;
  /// Wakes all that wait for anything here.
  void wake_all() const;

 private:
  char* base_;
  int size_;
};

}  // namespace deepspeed::comm::shm
