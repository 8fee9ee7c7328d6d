// A rank whose machine does not know the host of rank 0 says so while it waits, and asks for no names it does
// not need.
#pragma once

#include <chrono>
#include <string>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Waits until the job's address has a meaning here, as names of a cluster may come late; after some seconds
/// one line of the log names the host. Throws CommError, which does too, at the deadline.
void wait_until_host_is_known(const Job& job, std::chrono::steady_clock::time_point deadline);

/// While it lives this thread asks no name server, where `host` is known without one: an address, or
/// localhost. c10d's sockets look up the name of every address that they come to, and wait for it, for a text
/// that nobody reads.
class NoNameServer {
 public:
  explicit NoNameServer(const std::string& host);
  ~NoNameServer();
  NoNameServer(const NoNameServer&) = delete;
  NoNameServer& operator=(const NoNameServer&) = delete;

 private:
  bool acts_ = false;
  int num_servers_ = 0;
};

}  // namespace deepspeed::comm
