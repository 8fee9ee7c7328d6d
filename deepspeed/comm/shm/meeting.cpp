// How the ranks of a group get access to each other's memory.
//
// 1. Each rank listens at a random socket name. It writes the name and its machine, or why it takes no part,
//    on the board.
// 2. Once all have written, and all take part, each rank connects to lower ranks and accepts higher ones.
//    Over every connection both sides send a greeting with the descriptor of their arena. Rank 0 adds that of
//    the control block.
// 3. Each rank writes whether it succeeded. The group shares memory only if all ranks did.
//
// Others may be able to read the board, and any process on the machine can connect. So both ends ask the
// system for the other end's user before they send or read anything, and close connections of other users. A
// process of this user that is no rank of the group, and sends nothing or something wrong, is dropped or left
// waiting. It does not hold up the meeting.
#include "deepspeed/comm/shm/meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <ranges>
#include <sstream>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::comm::shm {
namespace {

constexpr const char* kReady = "ready";
// This many connections that have sent no greeting may be open, besides one for each rank. If more come, the
// oldest is dropped.
constexpr int kMostUnknown = 64;

struct Greeting {
  uint64_t token = 0;  // the receiver's, which it wrote on the board
  uint64_t arena_bytes = 0;
  int32_t rank = 0;
};

// Holds what a rank writes on the board.
struct Announcement {
  bool is_ready = false;
  std::string machine;
  std::string reason;  // why it is not ready
  std::string name;    // of the rank's socket
  uint64_t token = 0;
};

std::string to_text(const Announcement& said) {
  return said.is_ready ? message(kReady, "\n", said.machine, "\n", said.name, "\n", said.token)
                       : message("no\n", said.machine, "\n", said.reason);
}

Announcement announcement_of(const std::string& text) {
  std::istringstream in(text);
  Announcement said;
  std::string first;
  std::getline(in, first);
  said.is_ready = first == kReady;
  std::getline(in, said.machine);
  std::getline(in, said.is_ready ? said.name : said.reason);
  in >> said.token;
  return said;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

[[noreturn]] void refuse_call(const char* call) { raise<CommError>(call, ": ", std::strerror(errno)); }

// Returns an address in the abstract namespace, so no file is made.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) raise<CommError>("the name of a socket is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Descriptor new_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) refuse_call("socket");
  return made;
}

Descriptor listen_at(const std::string& name, int backlog) {
  Descriptor listener = new_socket();
  const auto [address, length] = address_of(name);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) refuse_call("bind");
  if (::listen(listener.get(), backlog) != 0) refuse_call("listen");
  return listener;
}

/// Holds a received greeting and the descriptors that came with it.
struct Packet {
  Greeting greeting;
  std::vector<Descriptor> descriptors;
};

/// Receives one packet. Returns nothing if the connection has ended or the packet has the wrong length.
std::optional<Packet> receive_packet(const Descriptor& socket) {
  Packet received;
  iovec data{&received.greeting, sizeof(received.greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> space{};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  packet.msg_control = space.data();
  packet.msg_controllen = space.size();
  const ssize_t length = ::recvmsg(socket.get(), &packet, MSG_CMSG_CLOEXEC);
  if (length < 0) return std::nullopt;
  for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr; header = CMSG_NXTHDR(&packet, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(fd);
    }
  }
  const bool is_whole = (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (!is_whole || length != static_cast<ssize_t>(sizeof(Greeting))) return std::nullopt;
  return received;
}

/// Sends a greeting. Returns false if the other end has closed the connection.
bool send_packet(const Descriptor& socket, Greeting greeting, const std::vector<int>& descriptors) {
  iovec data{&greeting, sizeof(greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> space{};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t bytes = descriptors.size() * sizeof(int);
    packet.msg_control = space.data();
    packet.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_len = CMSG_LEN(bytes);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  if (::sendmsg(socket.get(), &packet, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(greeting))) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  refuse_call("sendmsg");
}

/// Performs one rank's part in a meeting.
class Guest {
 public:
  explicit Guest(MeetingPlan plan) : plan_(std::move(plan)) {}

  int size() const { return static_cast<int>(plan_.names.size()); }

  /// Opens the socket that others connect to. Returns what to write on the board: its name, or why this rank
  /// is not ready.
  Announcement announce() {
    Announcement said;
    said.is_ready = plan_.refusal.empty();
    said.machine = plan_.machine;
    said.reason = one_line(plan_.refusal);
    if (!said.is_ready) return said;
    try {
      token_ = random_number();
      said.name = message("deepspeed-", std::hex, random_number(), random_number());
      said.token = token_;
      listener_ = listen_at(said.name, size() + kMostUnknown);
      if (plan_.arena) readable_arena_ = for_reading(plan_.arena->memory());
      if (plan_.rank == 0) make_control();
    } catch (const std::exception& error) {
      said.is_ready = false;
      said.reason = one_line(error.what());
    }
    return said;
  }

  std::unique_ptr<Member> connect(std::vector<Announcement> said) {
    said_ = std::move(said);
    deadline_ = Clock::now() + plan_.limit;
    peers_.resize(static_cast<size_t>(size()));
    called_.resize(static_cast<size_t>(plan_.rank));
    while (true) {
      bool is_any_missing = false;
      for (int rank = 0; rank < size(); ++rank) {
        if (rank == plan_.rank || has_met(rank)) continue;
        is_any_missing = true;
        if (rank < plan_.rank && !called_[static_cast<size_t>(rank)]) call(rank);
      }
      if (!is_any_missing) break;
      if (Clock::now() >= deadline_) refuse_missing();
      await_connections();
    }
    listener_ = Descriptor();
    unknown_.clear();
    Member::Parts parts;
    parts.rank = plan_.rank;
    parts.names = plan_.names;
    parts.control = map_memory(control_, Slot::bytes(size()), MappingUse::kCommon);
    parts.arena = plan_.arena;
    parts.peers = std::move(peers_);
    return std::make_unique<Member>(std::move(parts));
  }

 private:
  bool has_met(int rank) const { return peers_[static_cast<size_t>(rank)].socket() >= 0; }

  void make_control() {
    const size_t bytes = Slot::bytes(size());
    control_ = make_memory(bytes);
    if (!add_pages(control_, 0, bytes))
      raise<CommError>("no memory for the ", bytes, " bytes that ", size(),
                       " ranks share: ", std::strerror(errno));
    mapped_ = map_memory(control_, bytes, MappingUse::kCommon);
    Slot(mapped_->data(), size()).construct();
  }

  /// Connects to a lower rank and greets it. Does nothing if that rank's queue is full.
  void call(int rank) {
    const Announcement& said = said_[static_cast<size_t>(rank)];
    Descriptor socket = new_socket();
    const auto [address, length] = address_of(said.name);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      refuse_call("connect");
    }
    std::string user;
    if (!is_of_this_user(socket, &user))
      raise<CommError>("the socket of rank ", plan_.names[static_cast<size_t>(rank)], " belongs to the user ",
                       user, ", expected this one's, ", ::geteuid());
    if (greet(socket, rank)) called_[static_cast<size_t>(rank)] = std::move(socket);
  }

  /// Sends this rank's number and arena to `rank`, and from rank 0 the control block. Returns false if the
  /// connection has ended.
  bool greet(const Descriptor& socket, int rank) const {
    std::vector<int> descriptors;
    if (plan_.arena) descriptors.push_back(readable_arena_.get());
    if (plan_.rank == 0) descriptors.push_back(control_.get());
    const uint64_t arena_bytes = plan_.arena ? plan_.arena->bytes() : 0;
    return send_packet(socket, {said_[static_cast<size_t>(rank)].token, arena_bytes, plan_.rank},
                       descriptors);
  }

  /// Waits until connections have something to read, and handles it. Returns at the deadline, or soon if a
  /// rank is still to be called.
  void await_connections() {
    std::vector<pollfd> asked{{listener_.get(), POLLIN, 0}};
    for (const Descriptor& socket : called_) asked.push_back({socket.get(), POLLIN, 0});
    for (const Descriptor& socket : unknown_) asked.push_back({socket.get(), POLLIN, 0});
    const bool is_one_to_be_called = std::ranges::any_of(std::views::iota(0, plan_.rank), [&](int rank) {
      return !has_met(rank) && !called_[static_cast<size_t>(rank)];
    });
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    const int64_t limit = is_one_to_be_called ? 1 : left + 1;
    if (::poll(asked.data(), asked.size(), static_cast<int>(std::max<int64_t>(limit, 0))) <= 0) return;
    auto found = asked.begin();
    const bool is_anyone_new = (found++)->revents != 0;
    for (int rank = 0; rank < plan_.rank; ++rank) {
      if ((found++)->revents != 0) hear_called(rank);
    }
    std::deque<Descriptor> silent;
    for (Descriptor& socket : std::exchange(unknown_, {})) {
      if ((found++)->revents == 0) {
        silent.push_back(std::move(socket));
      } else {
        hear_unknown(std::move(socket));
      }
    }
    unknown_ = std::move(silent);
    if (is_anyone_new) accept_all();
  }

  void accept_all() {
    for (int i = 0; i < kMostUnknown; ++i) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (!socket) refuse_call("accept");
      if (!is_of_this_user(socket)) continue;
      unknown_.push_back(std::move(socket));
      // A rank greets as soon as it connects. If it is dropped here anyway, it connects again.
      if (unknown_.size() > static_cast<size_t>(size() + kMostUnknown)) unknown_.pop_front();
    }
  }

  /// Reads the answer of a rank that this one called.
  void hear_called(int rank) {
    Descriptor socket = std::move(called_[static_cast<size_t>(rank)]);
    auto packet = receive_packet(socket);
    if (!packet) return;  // the rank dropped this connection; it is called again
    if (!is_greeting_of(rank, *packet))
      raise<CommError>("the process that greeted as rank ", plan_.names[static_cast<size_t>(rank)],
                       " is not that rank, or did not send its memory");
    meet_rank(std::move(socket), std::move(*packet));
  }

  /// Reads the greeting of a connection that called this rank. Drops it unless it is a higher rank.
  void hear_unknown(Descriptor socket) {
    auto packet = receive_packet(socket);
    if (!packet) return;
    const int rank = packet->greeting.rank;
    if (rank <= plan_.rank || rank >= size() || has_met(rank) || !is_greeting_of(rank, *packet)) return;
    if (greet(socket, rank)) meet_rank(std::move(socket), std::move(*packet));
  }

  bool is_greeting_of(int rank, const Packet& packet) const {
    const size_t wanted = (packet.greeting.arena_bytes > 0 ? 1 : 0) + (rank == 0 ? 1 : 0);
    return packet.greeting.token == token_ && packet.greeting.rank == rank &&
           packet.descriptors.size() == wanted;
  }

  void meet_rank(Descriptor socket, Packet packet) {
    const Greeting& said = packet.greeting;
    std::shared_ptr<Mapping> arena;
    if (said.arena_bytes > 0) arena = map_memory(packet.descriptors[0], said.arena_bytes, MappingUse::kPeer);
    if (said.rank == 0) control_ = std::move(packet.descriptors.back());
    peers_[static_cast<size_t>(said.rank)] = Peer(std::move(socket), std::move(arena));
  }

  [[noreturn]] void refuse_missing() const {
    std::string missing;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == plan_.rank || has_met(rank)) continue;
      missing += message(missing.empty() ? "" : ", ", "rank ", plan_.names[static_cast<size_t>(rank)]);
    }
    raise<CommError>(missing, " of this machine did not connect in time");
  }

  MeetingPlan plan_;
  std::vector<Announcement> said_;
  Clock::time_point deadline_;
  uint64_t token_ = 0;
  Descriptor listener_, control_, readable_arena_;
  std::shared_ptr<Mapping> mapped_;
  std::vector<Descriptor> called_;  // lower ranks, until they answer
  std::deque<Descriptor> unknown_;  // connections that have sent no greeting yet
  std::vector<Peer> peers_;
};

}  // namespace

MeetingResult meet(const Board& board, MeetingPlan plan) {
  const int rank = plan.rank, size = static_cast<int>(plan.names.size());
  const std::vector<int> names = plan.names;
  const std::string machine = plan.machine;
  const bool is_refused = !plan.refusal.empty();
  Guest guest(std::move(plan));
  board.set(message("comes/", rank), to_text(guest.announce()));
  MeetingResult result;
  if (is_refused) {  // the others read this on the board
    result.reason = "this rank takes no part";
    return result;
  }
  std::vector<Announcement> said;
  for (int other = 0; other < size; ++other) {
    said.push_back(announcement_of(board.get(message("comes/", other))));
    if (said.back().machine != said.front().machine) result.is_one_machine = false;
    if (!said.back().is_ready && result.reason.empty())
      result.reason = message("rank ", names[static_cast<size_t>(other)], ": ", said.back().reason);
  }
  if (!result.is_one_machine) result.reason = "the ranks are on several machines";
  if (!result.reason.empty()) return result;
  std::string outcome = kReady;
  try {
    result.member = guest.connect(std::move(said));
  } catch (const std::exception& error) {
    outcome = one_line(error.what());
  }
  board.set(message("met/", rank), outcome);
  for (int other = 0; other < size; ++other) {
    const std::string told = board.get(message("met/", other));
    if (told == kReady) continue;
    result.reason +=
        message(result.reason.empty() ? "" : "; ", "rank ", names[static_cast<size_t>(other)], ": ", told);
  }
  if (!result.reason.empty()) result.member = nullptr;
  return result;
}

}  // namespace deepspeed::comm::shm
