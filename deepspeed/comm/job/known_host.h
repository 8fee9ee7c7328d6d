// A rank whose machine does not know the host of rank 0 says so while it waits.
#pragma once

#include <chrono>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Waits until the job's address has a meaning here, as names of a cluster may come late; after some seconds
/// one line of the log names the host. Throws CommError, which does too, at the deadline.
void wait_until_host_is_known(const Job& job, std::chrono::steady_clock::time_point deadline);

}  // namespace deepspeed::comm
