// Makes sockets between the processes of a job: addresses, listening, connecting, and waiting with a
// deadline.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/export.h"

namespace deepspeed::net {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // unset: never

/// Holds a socket's address, on a network or local to this machine. At a local address, other users are
/// refused.
struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool is_local() const { return address.ss_family == AF_UNIX; }
};

/// Returns the address of the Unix socket `name` in this network namespace. The name is not a file, so it
/// ends with the listening process.
DEEPSPEED_API SocketAddress local_address(const std::string& name);

/// Returns the wildcard addresses, which stand for all addresses of this machine. IPv6's, which serves IPv4
/// too, comes before IPv4's.
DEEPSPEED_API std::vector<SocketAddress> all_addresses(int port);

/// Returns the address of a host given as an IP address; nothing for a name.
DEEPSPEED_API std::optional<SocketAddress> numeric_address(const std::string& host, int port);

/// Returns the port of an address on a network.
DEEPSPEED_API int port_of(const SocketAddress& address);

/// Returns the address that a socket is bound to.
DEEPSPEED_API SocketAddress own_address(int socket);

/// Returns the IP address as text; 127.0.0.1 for a local address.
DEEPSPEED_API std::string numeric_host(const SocketAddress& address);

/// Listens at the address. Returns no socket on failure and sets errno.
DEEPSPEED_API Descriptor listen_at(const SocketAddress& address);

/// Returns the user id of the process at a local socket's other end, if known.
DEEPSPEED_API std::optional<uid_t> user_of_peer(int socket);

/// Returns the remaining milliseconds for poll(): -1 without a deadline, otherwise 0 or more.
DEEPSPEED_API int poll_time_until(Deadline deadline);

/// Waits until the socket is ready for `events` of poll(). Returns false at the deadline. After an error it
/// returns true, since the next call on the socket reports it.
DEEPSPEED_API bool wait_for_socket(int socket, short events, Deadline deadline);

/// Returns whether another user listens at the local address. If so, `who` describes that user; otherwise it
/// is unchanged.
DEEPSPEED_API bool is_of_another_user(const SocketAddress& address, std::string& who);

/// Begins to connect a new non-blocking socket, which becomes writable once it is connected. On failure
/// returns no socket and sets errno.
DEEPSPEED_API Descriptor begin_to_connect(const SocketAddress& address);

/// Connects a new non-blocking socket once. On failure it returns no socket and sets `why_not` and errno:
/// EAGAIN if too many clients are waiting, EACCES if another user listens at a local address.
DEEPSPEED_API Descriptor connect_to(const SocketAddress& address, Deadline deadline, std::string& why_not);

}  // namespace deepspeed::net
