// Opens the socket at which rank 0's store waits for other ranks. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/comm/job/job.h"
#include "deepspeed/net/socket.h"

namespace deepspeed::comm {

struct Listener {
  Descriptor socket;           // bound to the job's port, and listening
  net::SocketAddress address;  // at which this machine reaches the socket
  Descriptor reserved;         // holds the job's port at 127.0.0.1, without listening
  std::string place;  // for texts: where others may connect; "127.0.0.1", "all addresses of this machine"
};

/// Listens only at the address of MASTER_ADDR, so that no other network reaches the store, which tells ranks
/// where to connect. DEEPSPEED_LISTEN_ADDR overrides the address if a router translates MASTER_ADDR (NAT);
/// 0.0.0.0 and :: mean all addresses. If MASTER_ADDR is a name that here means only loopback, but ranks may
/// run on other machines, rank 0 listens at all addresses and logs a warning. Throws CommError if the address
/// does not belong to this machine, or if the port is taken.
Listener listen_for_ranks(const Job& job);

/// Listens at local_address(job), which no other user and no network can reach. Also reserves the job's port
/// if it is free, so that no other job chooses it. Throws CommError if another job uses that address.
Listener listen_on_this_machine(const Job& job);

/// Returns the address at which the ranks of a job on one machine meet. It depends on the user and the job's
/// port, and under torchrun on its run and its number of restarts.
net::SocketAddress local_address(const Job& job);

/// Returns the addresses of `host` with `port`, IPv4 first. There are none if the host is unknown.
std::vector<net::SocketAddress> addresses_of(const std::string& host, int port);

}  // namespace deepspeed::comm
