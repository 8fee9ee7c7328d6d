// Sends messages between two ranks over shared memory. The sender writes a letter with the message's location
// to its peer's socket. The receiver copies the message from there and answers. Small messages are inside the
// letter.
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

/// Moves messages in its own thread, so they arrive whatever the ranks' programs wait for. Thread-safe.
class Messages {
 public:
  /// Receives the outcome of a message once (null: success), in the thread of Messages or its destructor. The
  /// caller may then reuse the message's memory, except after a timeout. The function must not call Messages.
  using Done = std::function<void(std::exception_ptr error)>;

  explicit Messages(Member& member);
  /// Fails all messages that are not done.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(const void* data, size_t bytes, int peer, int tag, Clock::time_point deadline, Done done);
  /// Receives the next message with this tag from `peer`. If it does not have `bytes` bytes, `done` gets an
  /// error.
  void receive(void* data, size_t bytes, int peer, int tag, Clock::time_point deadline, Done done);
  /// Makes the thread check at once whether the group was given up.
  void wake();

 private:
  struct Letter {
    int tag = 0;
    uint64_t order = 0;
    uint64_t bytes = 0;
    uint64_t offset = 0;        // in the sender's arena
    std::vector<char> content;  // used instead of `offset`
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
    void* copy;  // in the arena; null if the message was not copied
    int tag;
    Clock::time_point deadline;
    Done done;
  };
  struct Mailbox {
    std::deque<Letter> letters;  // not yet received
    std::list<Wanted> wanted;
    std::map<uint64_t, Sent> sent;           // by order, until received
    std::deque<std::vector<char>> outgoing;  // not yet accepted by the socket
    bool has_ended = false;
    bool lied = false;  // has_ended because the peer wrote an invalid packet
  };
  struct Ending {
    Done done;
    std::exception_ptr error;
  };
  using Endings = std::vector<Ending>;

  /// Sends the outstanding answers to received messages, for at most two seconds. Without an answer, the
  /// sender of a message would report a failure.
  void tell_what_was_received();
  void start_thread();
  void serve();
  void await_news();
  void write(int peer, std::vector<char> packet);
  void flush(int peer);
  void read(int peer, Endings& endings);
  /// Handles one packet of a peer: its first `length` bytes. Returns false if the packet is invalid.
  bool take(Mailbox& mailbox, const std::vector<char>& packet, size_t length, Endings& endings);
  /// Copies arrived messages of `peer` into the memory of the receive() calls that want them. Adds the
  /// outcomes of these calls to `endings`. Releases the lock during each copy.
  void deliver(int peer, std::unique_lock<std::mutex>& lock, Endings& endings);
  void check(int peer, Endings& endings);
  void fail_all(int peer, std::exception_ptr error, Endings& endings);
  std::exception_ptr error_of(int peer) const;
  bool has_business(const Mailbox& mailbox) const { return !mailbox.wanted.empty() || !mailbox.sent.empty(); }

  Member& member_;
  Descriptor news_;  // an eventfd that wakes the thread
  std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;  // by rank
  uint64_t num_sent_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace deepspeed::comm::shm
