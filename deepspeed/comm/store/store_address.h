// Describes where a job's store waits for its ranks, and connects sockets to it. Internal to this folder and
// to the code that uses the store to meet.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <sys/socket.h>

#include "deepspeed/comm/shm/descriptor.h"

namespace deepspeed::comm {

using shm::Descriptor;
using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // unset: never

/// Is a socket's address on a network or on this machine. The latter excludes other users.
struct StoreAddress {
  sockaddr_storage address{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool is_local() const { return address.ss_family == AF_UNIX; }
};

/// Returns the address of that name on this machine, in its network namespace. It is not a file, so it ends
/// with the listening process.
StoreAddress local_store_address(const std::string& name);

/// Returns the host as a number; that of loopback for an address of this machine.
std::string numeric_host(const StoreAddress& address);

/// Listens at the address. Returns no socket on failure and sets errno.
Descriptor listen_at(const StoreAddress& address);

/// Returns the user of the process at the other end of a local socket.
std::optional<uid_t> user_of_peer(int socket);

/// Returns the remaining milliseconds for poll(): -1 without a deadline, otherwise 0 or more.
int poll_time_until(Deadline deadline);

/// Waits until the socket is ready for `events` of poll(). Returns false at the deadline.
bool wait_for_socket(int socket, short events, Deadline deadline);

/// Returns whether another user listens at the local address, and sets `who`.
bool is_of_another_user(const StoreAddress& address, std::string& who);

/// Connects once, with a non-blocking socket. On failure it returns no socket and sets `why_not` and errno,
/// which is EAGAIN if too many clients are waiting. At a local address, only a server of this user counts.
Descriptor connect_to(const StoreAddress& address, Deadline deadline, std::string& why_not);

}  // namespace deepspeed::comm
