// Makes sockets that listen at an address or connect to one. begin_to_connect() only starts to connect;
// connect_to() also waits, and tells why it failed. On a local socket the other end must be a process of the
// same user.
#include "deepspeed/net/socket.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include "deepspeed/base/message.h"

namespace deepspeed::net {
namespace {

constexpr int kBacklog = 2048;  // ranks that connect at the same moment

bool is_of_all(const SocketAddress& address) {
  const auto& host = reinterpret_cast<const sockaddr_in6&>(address.address).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&host);
}

bool peer_is_another_user(int socket, std::string& who) {
  const auto user = user_of_peer(socket);
  if (user == ::geteuid()) return false;
  who = message("another user of this machine (uid ", user ? static_cast<int64_t>(*user) : -1,
                ") holds the name of the job's socket; choose another port for all ranks, with MASTER_PORT");
  return true;
}

}  // namespace

SocketAddress local_address(const std::string& name) {
  SocketAddress result;
  auto& address = reinterpret_cast<sockaddr_un&>(result.address);
  address.sun_family = AF_UNIX;
  const size_t size =
      name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);  // after a zero byte: not a file
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return result;
}

std::vector<SocketAddress> all_addresses(int port) {
  SocketAddress six, four;  // zeros: any address
  auto& any6 = reinterpret_cast<sockaddr_in6&>(six.address);
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  six.length = sizeof(any6);
  auto& any4 = reinterpret_cast<sockaddr_in&>(four.address);
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<uint16_t>(port));
  four.length = sizeof(any4);
  return {six, four};
}

std::optional<SocketAddress> numeric_address(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  SocketAddress result;
  std::memcpy(&result.address, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

int port_of(const SocketAddress& address) {
  return ntohs(address.address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address.address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address.address).sin6_port);
}

SocketAddress own_address(int socket) {
  SocketAddress own;
  own.length = sizeof(own.address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.address), &own.length);
  return own;
}

std::string numeric_host(const SocketAddress& address) {
  if (address.is_local()) return "127.0.0.1";
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address.get(), address.length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

Descriptor listen_at(const SocketAddress& address) {
  Descriptor listener(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return {};
  const int on = 1, off = 0;  // ignores connections of an earlier job that are still closing
  if (address.address.ss_family == AF_INET6 && is_of_all(address))
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (!address.is_local()) ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    const int reason = errno;
    listener = Descriptor();
    errno = reason;
    return {};
  }
  return listener;
}

std::optional<uid_t> user_of_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}

int poll_time_until(Deadline deadline) {
  if (!deadline) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

bool wait_for_socket(int socket, short events, Deadline deadline) {
  pollfd waiting{socket, events, 0};
  while (true) {
    const int ready = ::poll(&waiting, 1, poll_time_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 && deadline && std::chrono::steady_clock::now() >= *deadline) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next call reports the error
  }
}

bool is_of_another_user(const SocketAddress& address, std::string& who) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::connect(socket.get(), address.get(), address.length) != 0) return false;
  return peer_is_another_user(socket.get(), who);
}

Descriptor begin_to_connect(const SocketAddress& address) {
  Descriptor socket(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::connect(socket.get(), address.get(), address.length) == 0 || errno == EINPROGRESS)
    return socket;
  const int reason = errno;
  socket.close();
  errno = reason;
  return {};
}

Descriptor connect_to(const SocketAddress& address, Deadline deadline, std::string& why_not) {
  Descriptor socket = begin_to_connect(address);
  int reason = socket ? 0 : errno;
  socklen_t length = sizeof(reason);
  if (socket && !wait_for_socket(socket.get(), POLLOUT, deadline)) {
    reason = ETIMEDOUT;
  } else if (socket && ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &reason, &length) != 0) {
    reason = errno;
  }
  if (reason != 0) {
    why_not = reason == EAGAIN ? "it takes no connections at the moment" : std::strerror(reason);
    socket = Descriptor();
    errno = reason;
    return {};
  }
  if (!address.is_local()) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    return socket;
  }
  if (!peer_is_another_user(socket.get(), why_not)) return socket;
  socket = Descriptor();
  errno = EACCES;
  return {};
}

}  // namespace deepspeed::net
