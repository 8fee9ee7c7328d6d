// One rank's part in a group over shared memory: it sees the control block, its peers and their arenas, and
// waits so that the end of a peer is an error and not a wait without end. A peer is another process of the
// machine, at the other end of a socket that hangs up when the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/comm/shm/arena.h"
#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/comm/shm/slot.h"

namespace deepspeed::comm::shm {

/// Says whether the process at the other end of a connected socket runs as the user of this one: nobody else
/// is told or believed anything. user: gets whose it is, where that is known.
bool is_of_this_user(const Descriptor& socket, std::string* user = nullptr);

class Peer {
 public:
  Peer() = default;
  /// Takes a connected socket. arena: the other's, read-only; null where it has none.
  Peer(Descriptor socket, std::shared_ptr<Mapping> arena);
  Peer(Peer&&) = default;
  Peer& operator=(Peer&&) = default;

  int socket() const { return socket_.get(); }
  int process() const { return process_; }
  const char* arena() const { return arena_ ? arena_->data() : nullptr; }
  const std::shared_ptr<Mapping>& arena_mapping() const { return arena_; }
  size_t arena_bytes() const { return arena_ ? arena_->bytes() : 0; }
  /// Says whether the process ended or closed its end.
  bool is_gone() const;
  /// Ends the connection for both sides, whoever else holds the socket: children inherit it.
  void hang_up() const;

 private:
  Descriptor socket_;
  Descriptor process_handle_;  // tells an end that a child of the process hides,
                               // where the system has it
  std::shared_ptr<Mapping> arena_;
  int process_ = 0;
};

using Clock = std::chrono::steady_clock;

class Member {
 public:
  /// Holds what a meeting made. `peers` has one for each rank, empty at the place of this one; `names` are
  /// the ranks as texts call them.
  struct Parts {
    int rank = 0;
    std::vector<int> names;
    std::shared_ptr<Mapping> control;
    std::shared_ptr<Arena> arena;  // of this process; null: it has none
    std::vector<Peer> peers;
  };
  explicit Member(Parts parts);
  /// Tells the peers that this rank left.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const { return parts_.rank; }
  int size() const { return static_cast<int>(parts_.peers.size()); }
  const Slot& slot() const { return slot_; }
  RankBlock& own() const { return slot_.of(parts_.rank); }
  Arena* arena() const { return parts_.arena.get(); }
  const Peer& peer(int rank) const { return parts_.peers[static_cast<size_t>(rank)]; }
  int name_of(int rank) const { return parts_.names[static_cast<size_t>(rank)]; }
  /// Returns "rank 2 (process 4711)".
  std::string describe(int rank) const;

  /// Waits until the counter is at `value`. operation: the number of that under way, which peers that left
  /// may have done already. Throws LostRank for a peer that ended, and CommError after the deadline, which
  /// names the ranks that did not come, and where this rank gave up.
  void wait(Counter& counter, uint32_t value, uint32_t operation, Clock::time_point deadline);
  /// Waits for nothing but the end: of the group, a peer, or the time.
  [[noreturn]] void wait_for_the_end(uint32_t operation, Clock::time_point deadline);
  /// Throws as wait() does, where there is a reason to.
  void look_around(uint32_t operation, Clock::time_point deadline);
  /// Throws LostRank where this peer ended, left or gave up.
  void check_peer(int rank);

  /// Tells the peers that this rank takes no part any more.
  void leave();
  /// Ends what waits here, and at the peers, now and later. Any thread may call, at any time.
  void give_up();
  /// Says whether this is a child of the process that met the peers: what it does is none of theirs.
  bool is_child() const;
  bool gave_up() const { return gave_up_.load(); }

 private:
  [[noreturn]] void lose(int name, int process, const std::string& text);
  void tell_end(int blamed_rank, int blamed_process);
  std::string missing(uint32_t operation) const;

  Parts parts_;
  Slot slot_;
  int process_;
  std::atomic<bool> gave_up_{false};
};

}  // namespace deepspeed::comm::shm
