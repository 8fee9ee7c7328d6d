// How the ranks of a group come to see each other's memory.
//
// Each listens at a random name, and writes name and machine, or why it takes no part, on the board. When all
// have, and all can, each connects to the ranks before it and accepts those after it; over every connection
// both send a greeting with the descriptors of their memory, the first rank that of the control block too.
// Then each writes how that went, and the group shares memory only where it went well on all.
#include "deepspeed/comm/shm/meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/shm/descriptor.h"

namespace deepspeed::comm::shm {
namespace {

constexpr const char* kReady = "ready";

struct Greeting {
  uint64_t token = 0;  // the receiver's, so that it is one of the group that greets
  uint64_t arena_bytes = 0;
  int32_t rank = 0;
};

// What a rank writes on the board.
struct Announcement {
  bool is_ready = false;
  std::string machine;
  std::string reason;  // why not
  std::string name;    // of its socket
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

// In the abstract name space: nothing lies in a folder.
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

Descriptor listen_at(const std::string& name, int size) {
  Descriptor listener = new_socket();
  const auto [address, length] = address_of(name);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) refuse_call("bind");
  if (::listen(listener.get(), size) != 0) refuse_call("listen");
  return listener;
}

void await_event(const Descriptor& socket, short events, Clock::time_point deadline, const char* what) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd asked{socket.get(), events, 0};
    const int found = ::poll(&asked, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (found > 0) return;
    if (found < 0 && errno == EINTR) continue;
    raise<CommError>("a rank of this machine did not ", what, " in time");
  }
}

/// One rank's way through a meeting.
class Guest {
 public:
  explicit Guest(MeetingPlan plan) : plan_(std::move(plan)) {}

  int size() const { return static_cast<int>(plan_.names.size()); }

  /// Opens what the others will connect to.
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
      listener_ = listen_at(said.name, size());
      if (plan_.rank == 0) make_control();
    } catch (const std::exception& error) {
      said.is_ready = false;
      said.reason = one_line(error.what());
    }
    return said;
  }

  std::unique_ptr<Member> connect(const std::vector<Announcement>& said) {
    deadline_ = Clock::now() + plan_.limit;
    peers_.resize(static_cast<size_t>(size()));
    for (int rank = 0; rank < plan_.rank; ++rank) {
      Descriptor socket = new_socket();
      const auto [address, length] = address_of(said[static_cast<size_t>(rank)].name);
      while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        if (errno != EAGAIN && errno != EINTR) refuse_call("connect");
        if (Clock::now() >= deadline_) raise<CommError>("a rank of this machine did not answer in time");
        ::usleep(1000);
      }
      greet(socket, said[static_cast<size_t>(rank)].token);
      take(std::move(socket), rank);
    }
    for (int rank = plan_.rank + 1; rank < size(); ++rank) {
      await_event(listener_, POLLIN, deadline_, "connect");
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) refuse_call("accept");
      const int from = take(std::move(socket), -1);
      greet_accepted(from, said[static_cast<size_t>(from)].token);
    }
    listener_ = Descriptor();
    Member::Parts parts;
    parts.rank = plan_.rank;
    parts.names = plan_.names;
    parts.control = map_memory(control_, Slot::bytes(size()), MappingUse::kCommon);
    parts.arena = plan_.arena;
    parts.peers = std::move(peers_);
    return std::make_unique<Member>(std::move(parts));
  }

 private:
  void make_control() {
    const size_t bytes = Slot::bytes(size());
    control_ = make_memory(bytes);
    if (!add_pages(control_, 0, bytes))
      raise<CommError>("no memory for the ", bytes, " bytes that ", size(),
                       " ranks share: ", std::strerror(errno));
    mapped_ = map_memory(control_, bytes, MappingUse::kCommon);
    Slot(mapped_->data(), size()).construct();
  }

  void greet_accepted(int rank, uint64_t token) {
    greet_over(peers_[static_cast<size_t>(rank)].socket(), token);
  }
  void greet(const Descriptor& socket, uint64_t token) { greet_over(socket.get(), token); }

  // Sends who this rank is, its arena, and from the first rank the control block.
  void greet_over(int socket, uint64_t token) {
    Greeting greeting{token, plan_.arena ? plan_.arena->bytes() : 0, plan_.rank};
    iovec data{&greeting, sizeof(greeting)};
    std::vector<int> descriptors;
    if (plan_.arena) descriptors.push_back(plan_.arena->memory().get());
    if (plan_.rank == 0) descriptors.push_back(control_.get());
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
    if (::sendmsg(socket, &packet, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(greeting)))
      refuse_call("sendmsg");
  }

  // Takes the greeting of a peer, and returns its rank. expected: -1: any.
  int take(Descriptor socket, int expected) {
    await_event(socket, POLLIN, deadline_, "greet");
    Greeting greeting;
    iovec data{&greeting, sizeof(greeting)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> space{};
    msghdr packet{};
    packet.msg_iov = &data;
    packet.msg_iovlen = 1;
    packet.msg_control = space.data();
    packet.msg_controllen = space.size();
    const ssize_t length = ::recvmsg(socket.get(), &packet, MSG_CMSG_CLOEXEC);
    std::vector<Descriptor> received;
    if (length > 0) {
      for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr;
           header = CMSG_NXTHDR(&packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
          received.emplace_back(fd);
        }
      }
    }
    const int rank = greeting.rank;
    const size_t wanted = (greeting.arena_bytes > 0 ? 1 : 0) + (rank == 0 ? 1 : 0);
    if (length != static_cast<ssize_t>(sizeof(greeting)) || greeting.token != token_ || rank < 0 ||
        rank >= size() || (expected >= 0 && rank != expected) || received.size() != wanted) {
      raise<CommError>("a greeting that is not one of the group's ranks, or came without its descriptors");
    }
    std::shared_ptr<Mapping> arena;
    if (greeting.arena_bytes > 0) arena = map_memory(received[0], greeting.arena_bytes, MappingUse::kPeer);
    if (rank == 0) control_ = std::move(received.back());
    peers_[static_cast<size_t>(rank)] = Peer(std::move(socket), std::move(arena));
    return rank;
  }

  MeetingPlan plan_;
  Clock::time_point deadline_;
  uint64_t token_ = 0;
  Descriptor listener_, control_;
  std::shared_ptr<Mapping> mapped_;
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
  if (is_refused) {  // as the others will read
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
    result.member = guest.connect(said);
  } catch (const std::exception& error) {
    outcome = one_line(error.what());
  }
  board.set(message("met/", rank), outcome);
  for (int other = 0; other < size; ++other) {
    const std::string told = board.get(message("met/", other));
    if (told != kReady && result.reason.empty())
      result.reason = message("rank ", names[static_cast<size_t>(other)], ": ", told);
  }
  if (!result.reason.empty()) result.member = nullptr;
  return result;
}

}  // namespace deepspeed::comm::shm
