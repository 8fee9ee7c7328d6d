// Rank 0's store waits for the other ranks at this socket. Internal to this folder.
#pragma once

#include <string>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// This variable names another address than MASTER_ADDR for rank 0 to listen at.
constexpr const char* kListenVariable = "DEEPSPEED_LISTEN_ADDR";

struct Listener {
  int socket = -1;      // bound to the job's port, and listening; whoever takes it closes it
  std::string address;  // numeric, at which this machine reaches it
  std::string place;    // for texts: where others may come to; "127.0.0.1", "all addresses of this machine"
};

/// Listens at the address that MASTER_ADDR names, and at no other: nobody else reaches the store, which says
/// where ranks connect. DEEPSPEED_LISTEN_ADDR names another one, for a MASTER_ADDR that is translated on the
/// way; 0.0.0.0 and :: mean all. Where MASTER_ADDR is a name that means this machine alone, but ranks may
/// come from others, it listens at all addresses, and a warning says so. Throws CommError where no such
/// address is this machine's, or the port is taken.
Listener listen_for_ranks(const Job& job);

}  // namespace deepspeed::comm
