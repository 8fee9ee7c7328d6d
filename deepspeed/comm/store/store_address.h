// Where the store of a job waits for its ranks, and how a socket gets there. Internal to this folder and to
// who meets.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <sys/socket.h>

#include "deepspeed/base/descriptor.h"

namespace deepspeed::comm {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nothing: never

/// Is the address of a socket: of this machine alone, where other users are kept out, or of a network.
struct StoreAddress {
  sockaddr_storage address{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool is_local() const { return address.ss_family == AF_UNIX; }
};

/// Returns the address of that name on this machine (of its network namespace): no file, so that it ends with
/// the process that listens there.
StoreAddress local_store_address(const std::string& name);

/// Returns the host as a number; loopback's for an address of this machine.
std::string numeric_host(const StoreAddress& address);

/// Listens there; without a socket, errno says why not.
Descriptor listen_at(const StoreAddress& address);

/// Returns the user of the process at the other end of a socket of this machine.
std::optional<uid_t> user_of_peer(int socket);

/// Returns how many milliseconds are left, for poll(): -1 without a deadline, else 0 or more.
int poll_time_until(Deadline deadline);

/// Waits until the socket is ready for `events` of poll(); false at the deadline.
bool wait_for_socket(int socket, short events, Deadline deadline);

/// Says whether another user listens at the local address, and then who.
bool is_of_another_user(const StoreAddress& address, std::string& who);

/// Connects once; without a socket `why_not` and errno say why: EAGAIN where too many wait there to be let
/// in. At a local address whoever is not this user is nobody. The socket does not block.
Descriptor connect_to(const StoreAddress& address, Deadline deadline, std::string& why_not);

}  // namespace deepspeed::comm
