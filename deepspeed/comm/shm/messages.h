// Messages between two ranks over shared memory. A sender writes a letter to the socket of its peer that says
// where the message lies; the receiver copies it from there and says so. Small ones travel in the letter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/comm/shm/member.h"

namespace deepspeed::comm::shm {

/// Moves messages in a thread of its own, so that they arrive whatever the ranks' programs wait for. Any
/// thread may call.
class Messages {
 public:
  /// Is called once, from the thread, when the memory of the message is the caller's again, or it failed. It
  /// must not call back.
  using Done = std::function<void(std::exception_ptr error)>;

  explicit Messages(Member& member);
  /// Fails what is not done.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(const void* data, size_t bytes, int peer, int tag, Clock::time_point deadline, Done done);
  /// Takes the first message of this tag from `peer` that none took before. It must have `bytes`.
  void receive(void* data, size_t bytes, int peer, int tag, Clock::time_point deadline, Done done);
  /// Looks at once whether the group was given up.
  void wake();

 private:
  struct Letter {
    int tag = 0;
    uint64_t order = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;        // in the sender's arena
    std::vector<char> content;  // in place of it
    bool has_content = false;

    bool is_whole() const { return !has_content || content.size() == bytes; }
  };
  struct Wanted {
    char* data;
    size_t bytes;
    int tag;
    Clock::time_point deadline;
    Done done;
  };
  struct Sent {
    void* copy;  // in the arena; null: the message lies where it was
    int tag;
    Clock::time_point deadline;
    Done done;
  };
  struct Mailbox {
    std::deque<Letter> letters;  // that nobody took
    std::list<Wanted> wanted;
    std::map<uint64_t, Sent> sent;           // by order, until they are received
    std::deque<std::vector<char>> outgoing;  // what the socket did not take yet
    bool has_ended = false;
    bool lied = false;  // it ended since the peer wrote what is no message
  };
  struct Ending {
    Done done;
    std::exception_ptr error;
  };
  using Endings = std::vector<Ending>;

  /// Waits until the senders of what was received know: they would take this end for a failure.
  void tell_what_was_received();
  void start_thread();
  void serve();
  void await_news();
  void write(int peer, std::vector<char> packet);
  void flush(int peer);
  void read(int peer, Endings& endings);
  /// Takes one packet of a peer. Returns false for one that no rank of this program writes.
  bool take(Mailbox& mailbox, const std::vector<char>& packet, size_t length, Endings& endings);
  /// Copies what has come and is wanted; the lock is open meanwhile.
  void deliver(int peer, std::unique_lock<std::mutex>& lock, Endings& endings);
  void check(int peer, Endings& endings);
  void fail_all(int peer, std::exception_ptr error, Endings& endings);
  std::exception_ptr error_of(int peer) const;
  bool has_business(const Mailbox& mailbox) const { return !mailbox.wanted.empty() || !mailbox.sent.empty(); }

  Member& member_;
  Descriptor news_;  // tells the thread that there is something to do
  std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;  // by rank
  uint64_t num_sent_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace deepspeed::comm::shm
