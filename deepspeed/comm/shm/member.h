// One rank's membership in a group over shared memory: the control block, the peers and their arenas. A wait
// throws if a peer ends, instead of hanging. A peer is another process on the machine, at the other end of a
// socket that closes when the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/system/clock.h"
#include "deepspeed/comm/shm/arena.h"
#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/comm/shm/slot.h"

namespace deepspeed::comm::shm {

/// Returns whether the other end of a connected socket runs as this user. Only such a process is trusted.
/// `user` receives the other end's user id, or "unknown".
bool is_of_this_user(const Descriptor& socket, std::string* user = nullptr);

/// Holds the connection to another rank of the group, and that rank's arena.
class Peer {
 public:
  Peer() = default;
  /// Takes a connected socket and the peer's read-only arena, or null if it has none.
  Peer(Descriptor socket, std::shared_ptr<Mapping> arena);
  Peer(Peer&&) = default;
  Peer& operator=(Peer&&) = default;

  int socket() const { return socket_.get(); }
  int process() const { return process_; }
  const char* arena() const { return arena_ ? arena_->data() : nullptr; }
  const std::shared_ptr<Mapping>& arena_mapping() const { return arena_; }
  size_t arena_bytes() const { return arena_ ? arena_->bytes() : 0; }
  /// Returns whether the peer's process has ended or closed its end of the socket.
  bool is_gone() const;
  /// Shuts the connection down for both sides, even if child processes have inherited the socket.
  void hang_up() const;

 private:
  Descriptor socket_;
  Descriptor process_handle_;  // shows the end even if a child holds the socket; needs pidfd_open
  std::shared_ptr<Mapping> arena_;
  int process_ = 0;
};

/// Represents this rank in the group: waits for peers, and notices when they end.
class Member {
 public:
  /// Holds what a meeting (meeting.h) made. `peers` is indexed by rank and empty at this rank. `names` are
  /// the ranks' numbers in error texts.
  struct Parts {
    int rank = 0;
    std::vector<int> names;
    std::shared_ptr<Mapping> control;
    std::shared_ptr<Arena> arena;  // this process's; may be null
    std::vector<Peer> peers;
  };
  explicit Member(Parts parts);
  /// Tells the peers that this rank has left.
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

  /// Waits until the counter reaches `value`. `operation` is the number of the current operation; peers that
  /// have finished it may leave. Throws LostRank if a peer has ended. Throws CommError if a peer or this rank
  /// gave up, or after the deadline; that text names the ranks that did not arrive.
  void wait(Counter& counter, uint32_t value, uint32_t operation, Clock::time_point deadline);
  /// Waits until the group or a peer ends or the deadline passes, then throws.
  [[noreturn]] void wait_for_the_end(uint32_t operation, Clock::time_point deadline);
  /// Throws as wait() does if there is a reason to, otherwise returns at once.
  void look_around(uint32_t operation, Clock::time_point deadline);
  /// Throws LostRank if this peer has ended or blames an ended rank. Throws CommError if it has left or given
  /// up.
  void check_peer(int rank);

  /// Tells the peers that this rank takes no further part.
  void leave();
  /// Ends all current and later waits of this rank and its peers. Any thread may call it at any time.
  void give_up();
  /// Returns whether this is a forked child of the member's process. A child must not affect the peers.
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
