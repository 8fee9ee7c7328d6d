// How a message travels.
//
// 1. send() copies a message that lies outside the arena into the arena, and writes the letter to the peer's
//    socket. If the arena has no room, the content follows the letter through the socket, piece by piece.
// 2. The receiver's thread reads letters as they arrive. It matches them with receive() calls by tag, in the
//    order in which they were sent, and copies without holding the lock.
// 3. It answers with the letter's number, and the sender's thread then completes the message.
//
// Each thread sleeps in poll() over all sockets. While a message is under way it checks the peers and the
// clock ten times a second.
#include "deepspeed/comm/shm/messages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::comm::shm {
namespace {

constexpr int kMessageLook = 100;  // milliseconds
constexpr size_t kMostInLetter = 4096;
constexpr std::chrono::seconds kLongestFarewell{2};  // for peers that do not read their sockets

enum class PacketKind : uint32_t { kLetter, kLetterWithContent, kFurtherContent, kReceived };

struct PacketHead {
  PacketKind kind = PacketKind::kLetter;
  int32_t tag = 0;
  uint64_t order = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

std::vector<char> packet_of(const PacketHead& head, const void* content, size_t bytes) {
  std::vector<char> packet(sizeof(head) + bytes);
  std::memcpy(packet.data(), &head, sizeof(head));
  if (bytes > 0) std::memcpy(packet.data() + sizeof(head), content, bytes);
  return packet;
}

std::exception_ptr message_error(const std::string& text) { return std::make_exception_ptr(CommError(text)); }

}  // namespace

Messages::Messages(Member& member)
    : member_(member),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      mailboxes_(static_cast<size_t>(member.size())) {
  if (!news_) raise<CommError>("eventfd: ", std::strerror(errno));
}

Messages::~Messages() {
  if (member_.is_child()) {  // a child has no such thread
    if (thread_.joinable()) thread_.detach();
    return;
  }
  tell_what_was_received();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  Endings endings;
  member_.leave();  // before the memory of unreceived messages is reused
  for (int peer = 0; peer < member_.size(); ++peer)
    fail_all(peer, message_error("the group was left before the message was done"), endings);
  for (Ending& ending : endings) {
    if (ending.done) ending.done(ending.error);
  }
}

void Messages::tell_what_was_received() {
  const auto tells = [](const std::vector<char>& packet) {
    PacketHead head;
    std::memcpy(&head, packet.data(), sizeof(head));
    return head.kind == PacketKind::kReceived;
  };
  for (const auto end = Clock::now() + kLongestFarewell; Clock::now() < end;) {
    bool waits = false;
    {
      const std::lock_guard lock(mutex_);
      for (int peer = 0; peer < member_.size(); ++peer) {
        if (peer == member_.rank()) continue;
        flush(peer);
        const Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
        waits = waits || (!mailbox.has_ended && std::ranges::any_of(mailbox.outgoing, tells));
      }
    }
    if (!waits) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Messages::wake() {
  const uint64_t one = 1;
  static_cast<void>(::write(news_.get(), &one, sizeof(one)) == 0);
}

void Messages::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
}

void Messages::send(const void* data, size_t bytes, int peer, int tag, Clock::time_point deadline,
                    Done done) {
  Arena* const arena = member_.arena();
  std::optional<size_t> offset;
  void* copy = nullptr;
  if (bytes > kMostInLetter) {
    if (arena != nullptr) offset = arena->offset_of(data, bytes);
    if (!offset && arena != nullptr) copy = arena->allocate(bytes);
    if (copy != nullptr) {
      std::memcpy(copy, data, bytes);
      offset = arena->offset_of(copy, bytes);
    }
  }
  const std::lock_guard lock(mutex_);
  PacketHead head{offset ? PacketKind::kLetter : PacketKind::kLetterWithContent, tag, ++num_sent_, bytes,
                  offset.value_or(0)};
  mailboxes_[static_cast<size_t>(peer)].sent.emplace(head.order, Sent{copy, tag, deadline, std::move(done)});
  const size_t in_letter = offset ? 0 : std::min(bytes, kMostInLetter);
  write(peer, packet_of(head, data, in_letter));
  if (!offset) {
    head.kind = PacketKind::kFurtherContent;
    for (size_t begin = in_letter; begin < bytes; begin += kMostInLetter)
      write(peer,
            packet_of(head, static_cast<const char*>(data) + begin, std::min(bytes - begin, kMostInLetter)));
  }
  start_thread();
  wake();
}

void Messages::receive(void* data, size_t bytes, int peer, int tag, Clock::time_point deadline, Done done) {
  const std::lock_guard lock(mutex_);
  mailboxes_[static_cast<size_t>(peer)].wanted.push_back(
      {static_cast<char*>(data), bytes, tag, deadline, std::move(done)});
  start_thread();
  wake();
}

void Messages::write(int peer, std::vector<char> packet) {
  mailboxes_[static_cast<size_t>(peer)].outgoing.push_back(std::move(packet));
  flush(peer);
}

void Messages::flush(int peer) {
  Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
  while (!mailbox.outgoing.empty()) {
    const auto& packet = mailbox.outgoing.front();
    const ssize_t sent = ::send(member_.peer(peer).socket(), packet.data(), packet.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return mailbox.outgoing.clear();  // the peer is gone, as read() finds
    mailbox.outgoing.pop_front();
  }
}

void Messages::read(int peer, Endings& endings) {
  Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
  std::vector<char> packet(sizeof(PacketHead) + kMostInLetter);
  while (!mailbox.has_ended) {
    // MSG_TRUNC returns the packet's full length, even if it exceeds the buffer.
    const ssize_t length = ::recv(member_.peer(peer).socket(), packet.data(), packet.size(), MSG_TRUNC);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    mailbox.has_ended = length <= 0;
    if (mailbox.has_ended) return;
    mailbox.lied = !take(mailbox, packet, static_cast<size_t>(length), endings);
    mailbox.has_ended = mailbox.lied;
  }
}

bool Messages::take(Mailbox& mailbox, const std::vector<char>& packet, size_t length, Endings& endings) {
  PacketHead head;
  if (length < sizeof(head) || length > packet.size()) return false;
  std::memcpy(&head, packet.data(), sizeof(head));
  const size_t content_bytes = length - sizeof(head);
  const auto content = packet.begin() + sizeof(head);
  const auto content_end = content + static_cast<ptrdiff_t>(content_bytes);
  // The rest of a message follows its letter, before any other letter.
  Letter* const unfinished =
      mailbox.letters.empty() || mailbox.letters.back().is_whole() ? nullptr : &mailbox.letters.back();
  switch (head.kind) {
    case PacketKind::kReceived: {
      const auto found = mailbox.sent.find(head.order);
      if (found == mailbox.sent.end()) return content_bytes == 0;
      if (found->second.copy != nullptr) member_.arena()->free(found->second.copy);
      endings.push_back({std::move(found->second.done), nullptr});
      mailbox.sent.erase(found);
      return content_bytes == 0;
    }
    case PacketKind::kFurtherContent:
      if (unfinished == nullptr || content_bytes == 0 ||
          content_bytes > unfinished->bytes - unfinished->content.size())
        return false;
      unfinished->content.insert(unfinished->content.end(), content, content_end);
      return true;
    case PacketKind::kLetterWithContent:
      if (unfinished != nullptr || content_bytes != std::min<uint64_t>(head.bytes, kMostInLetter))
        return false;
      mailbox.letters.push_back({head.tag, head.order, head.bytes, 0, {content, content_end}, true});
      return true;
    case PacketKind::kLetter:
      if (unfinished != nullptr || content_bytes != 0) return false;
      mailbox.letters.push_back({head.tag, head.order, head.bytes, head.offset, {}});
      return true;
  }
  return false;
}

void Messages::deliver(int peer, std::unique_lock<std::mutex>& lock, Endings& endings) {
  Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
  for (auto letter = mailbox.letters.begin(); letter != mailbox.letters.end();) {
    const auto wanted = std::find_if(mailbox.wanted.begin(), mailbox.wanted.end(),
                                     [&](const Wanted& want) { return want.tag == letter->tag; });
    if (wanted == mailbox.wanted.end() || !letter->is_whole()) {
      ++letter;
      continue;
    }
    const Letter taken = std::move(*letter);
    mailbox.letters.erase(letter);
    Wanted want = std::move(*wanted);
    mailbox.wanted.erase(wanted);
    std::exception_ptr error;
    lock.unlock();  // only this thread removes letters
    const Peer& sender = member_.peer(peer);
    if (taken.bytes != want.bytes) {
      error = message_error(message("the message of ", member_.describe(peer), " with the tag ", taken.tag,
                                    " has ", taken.bytes, " bytes, but ", want.bytes, " are expected"));
    } else if (taken.has_content || taken.bytes == 0) {
      if (taken.bytes > 0) std::memcpy(want.data, taken.content.data(), want.bytes);
    } else if (taken.bytes > sender.arena_bytes() || taken.offset > sender.arena_bytes() - taken.bytes) {
      error = message_error(message("the message of ", member_.describe(peer), " lies outside its memory"));
    } else {
      std::memcpy(want.data, sender.arena() + taken.offset, want.bytes);
      // A peer that has left may have reused the message's memory.
      if (member_.slot().of(peer).presence_after_reading() != Presence::kHere) error = error_of(peer);
    }
    lock.lock();
    PacketHead received;
    received.kind = PacketKind::kReceived;
    received.order = taken.order;
    write(peer, packet_of(received, nullptr, 0));
    endings.push_back({std::move(want.done), error});
    letter = mailbox.letters.begin();  // an earlier letter may be wanted by now
  }
}

std::exception_ptr Messages::error_of(int peer) const {
  if (mailboxes_[static_cast<size_t>(peer)].lied)
    return message_error(member_.describe(peer) + " sent something that is not a message");
  try {
    member_.check_peer(peer);
  } catch (...) {
    return std::current_exception();
  }
  return message_error(member_.describe(peer) + " ended the connection");
}

void Messages::fail_all(int peer, std::exception_ptr error, Endings& endings) {
  Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
  for (Wanted& want : mailbox.wanted) endings.push_back({std::move(want.done), error});
  for (auto& [order, sent] : mailbox.sent) {
    if (sent.copy != nullptr) member_.arena()->free(sent.copy);
    endings.push_back({std::move(sent.done), error});
  }
  mailbox.wanted.clear();
  mailbox.sent.clear();
}

void Messages::check(int peer, Endings& endings) {
  Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
  if (!has_business(mailbox)) return;
  if (member_.gave_up()) return fail_all(peer, message_error("the group was given up"), endings);
  if (mailbox.has_ended || member_.slot().of(peer).presence.load() == Presence::kGaveUp)
    return fail_all(peer, error_of(peer), endings);
  const auto now = Clock::now();
  for (auto want = mailbox.wanted.begin(); want != mailbox.wanted.end();) {
    if (now < want->deadline) {
      ++want;
      continue;
    }
    endings.push_back(
        {std::move(want->done), message_error(message("the time is over: ", member_.describe(peer),
                                                      " sent no message with the tag ", want->tag))});
    want = mailbox.wanted.erase(want);
  }
  for (auto& [order, sent] : mailbox.sent) {
    if (now < sent.deadline || !sent.done) continue;
    // The copy stays: the peer may be reading it.
    endings.push_back({std::exchange(sent.done, nullptr),
                       message_error(message("the time is over: ", member_.describe(peer),
                                             " did not take the message with the tag ", sent.tag))});
  }
}

void Messages::await_news() {
  std::vector<pollfd> asked{{news_.get(), POLLIN, 0}};
  bool is_busy = false;
  {
    const std::lock_guard lock(mutex_);
    for (int peer = 0; peer < member_.size(); ++peer) {
      const Mailbox& mailbox = mailboxes_[static_cast<size_t>(peer)];
      is_busy = is_busy || has_business(mailbox);
      if (peer == member_.rank() || mailbox.has_ended) continue;
      const short writing = mailbox.outgoing.empty() ? 0 : POLLOUT;
      asked.push_back({member_.peer(peer).socket(), static_cast<short>(POLLIN | writing), 0});
    }
  }
  ::poll(asked.data(), asked.size(), is_busy ? kMessageLook : -1);
  uint64_t count = 0;
  static_cast<void>(::read(news_.get(), &count, sizeof(count)) == 0);
}

void Messages::serve() {
  while (true) {
    await_news();
    Endings endings;
    {
      std::unique_lock lock(mutex_);
      if (stopped_) return;
      for (int peer = 0; peer < member_.size(); ++peer) {
        if (peer == member_.rank()) continue;
        flush(peer);
        read(peer, endings);
        deliver(peer, lock, endings);
        check(peer, endings);
      }
    }
    for (Ending& ending : endings) {
      if (ending.done) ending.done(ending.error);
    }
  }
}

}  // namespace deepspeed::comm::shm
