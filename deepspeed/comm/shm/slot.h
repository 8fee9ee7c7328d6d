// Defines the shared control block of one group: its ranks' counters, posts and staged data. All ranks map
// and write it, whereas peers can only read an arena.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace deepspeed::comm::shm {

/// Counts upwards; processes can wait until it reaches a value. It wraps at 2^32, so compared counts must be
/// less than 2^31 apart. It has a cache line of its own.
struct alignas(64) Counter {
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "several processes use it");
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  /// Sets the count. A process that waits for it also sees everything written before.
  void advance(uint32_t to);
  bool reached(uint32_t to) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - to) >= 0;
  }
  /// Spins briefly without giving up the core. Returns whether the count was reached.
  bool spin_until(uint32_t to) const;
  /// Sleeps until the count is reached, for at most `limit`. wake() ends the sleep early. Returns whether the
  /// count was reached.
  bool sleep_until(uint32_t to, std::chrono::milliseconds limit);
  /// Wakes all sleepers, so that they check their conditions again.
  void wake();
};

constexpr uint32_t kNumPosts = 64;  // operations that one rank may be ahead of another
constexpr uint64_t kStaged = ~uint64_t{0};

/// Describes where peers can read one operation's input. A post is valid once its rank's `posted` counts it.
/// The post's entry in the ring is free once the `done` of all peers counts the post.
struct Post {
  uint64_t call = 0;         // fingerprint, equal on ranks that make equal calls
  uint64_t bytes = 0;        // size of the input
  uint64_t offset = 0;       // in the arena, or kStaged
  uint32_t first_piece = 0;  // number of its first piece, if staged
};

/// Tells whether a rank takes part in the group.
enum class Presence : uint32_t { kHere, kLeft, kGaveUp };

/// Holds what one rank writes and all others read.
struct RankBlock {
  Counter posted;   // operations whose post is in the ring
  Counter reduced;  // operations whose range this rank has reduced, in its own memory
  Counter staged;   // pieces copied into the stage
  Counter done;     // operations for which this rank has read everything
  alignas(64) std::atomic<Presence> presence{Presence::kHere};
  std::atomic<int> blamed_rank{-1};
  std::atomic<int> blamed_process{0};
  Post ring[kNumPosts];

  /// Returns the presence, read after all earlier reads of the rank's memory. If it is still kHere, the rank
  /// had not reused that memory. A plain load could be reordered before those reads, so this writes.
  Presence presence_after_reading() {
    auto said = Presence::kHere;
    presence.compare_exchange_strong(said, Presence::kHere);
    return said;
  }
  /// Sets the presence to `how`, unless it was set before. The rank may reuse its memory afterwards.
  void leave_as(Presence how) {
    auto here = Presence::kHere;
    presence.compare_exchange_strong(here, how);
  }
};

/// Gives access to the control block of `size` ranks at an address.
class Slot {
 public:
  Slot(char* base, int size) : base_(base), size_(size) {}
  static size_t bytes(int size);
  /// Returns the size of half a stage, in bytes. A stage is a rank's buffer in the block, for inputs outside
  /// its arena. The rank fills one half while its peers read the other.
  static size_t stage_bytes(int size);
  /// Constructs the block in fresh memory. Only one rank calls this, before any other reads the block.
  void construct() const;

  int size() const { return size_; }
  RankBlock& of(int rank) const;
  /// Returns the count of pieces of `source` that `reader` has read.
  Counter& read_of(int reader, int source) const;
  /// Returns the half of a rank's stage that holds piece number `piece`.
  char* stage(int rank, uint32_t piece) const;
  /// Wakes all processes that wait on any counter of the block.
  void wake_all() const;

 private:
  char* base_;
  int size_;
};

}  // namespace deepspeed::comm::shm
