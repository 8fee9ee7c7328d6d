// Rank 0's store waits for the other ranks at this socket. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/store/store_address.h"

namespace deepspeed::comm {

struct Listener {
  Descriptor socket;     // bound to the job's port, and listening
  StoreAddress address;  // at which this machine reaches it
  Descriptor reserved;   // holds the job's port of 127.0.0.1, at which nobody listens
  std::string place;     // for texts: where others may come to; "127.0.0.1", "all addresses of this machine"
};

/// Listens at the address that MASTER_ADDR names, and at no other: nobody else reaches the store, which says
/// where ranks connect. DEEPSPEED_LISTEN_ADDR names another one, for a MASTER_ADDR that is translated on the
/// way; 0.0.0.0 and :: mean all. Where MASTER_ADDR is a name that means this machine alone, but ranks may
/// come from others, it listens at all addresses, and a warning says so. Throws CommError where no such
/// address is this machine's, or the port is taken.
Listener listen_for_ranks(const Job& job);

/// Listens at local_address(job), where no other user and no network gets. Holds the job's port too, where it
/// is free, so that nobody chooses it for another job. Throws CommError where another job has the name.
Listener listen_on_this_machine(const Job& job);

/// Returns where the ranks of a job of one machine meet, by this user, the job's port and, under torchrun,
/// its run and how often that has started anew.
StoreAddress local_address(const Job& job);

/// Returns the addresses of the host and port where rank 0 listens, IPv4 first; none where the host is
/// unknown.
std::vector<StoreAddress> addresses_of(const std::string& host, int port);

}  // namespace deepspeed::comm
