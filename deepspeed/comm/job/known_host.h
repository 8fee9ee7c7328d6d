// Waits for a host name to become known and logs it, and avoids needless name look-ups.
#pragma once

#include <chrono>
#include <string>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Waits until the job's host name resolves, since names in a cluster may appear late. After a few seconds
/// one log line names the host. Throws CommError, which also names it, at the deadline.
void wait_until_host_is_known(const Job& job, std::chrono::steady_clock::time_point deadline);

/// Keeps this thread from asking name servers if `host` is an address or localhost. c10d's sockets look up
/// the name of every address they connect to. They wait for the name only to put it into an internal text.
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
