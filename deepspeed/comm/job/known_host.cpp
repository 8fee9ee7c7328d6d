#include "deepspeed/comm/job/known_host.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/job/address_list.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a name may be unknown before it is logged, and the interval between look-ups.
constexpr milliseconds kPatienceWithNames(3000);
constexpr milliseconds kBetweenLooks(250);

/// Returns why the host is unknown, or null if it is known.
const char* what_hides(const std::string& host) { return AddressList(host, nullptr, SOCK_STREAM).error(); }

}  // namespace

void wait_until_host_is_known(const Job& job, Clock::time_point deadline) {
  const auto begin = Clock::now();
  bool was_told = false;
  while (const char* reason = what_hides(job.master_addr)) {
    const auto text = [&](const char* rest) {
      return message("rank ", job.rank, " of ", job.world_size, " does not know the host '", job.master_addr,
                     "' of MASTER_ADDR or init_method (", reason, ")", rest);
    };
    if (Clock::now() >= deadline) raise<CommError>(text("; expected an address or a known name"));
    if (!was_told && Clock::now() - begin > kPatienceWithNames) {
      was_told = true;
      log::warning("[comm] ", text(": it waits for the name"));
    }
    std::this_thread::sleep_for(
        std::clamp<Clock::duration>(deadline - Clock::now(), milliseconds(1), kBetweenLooks));
  }
}

// The resolver's state belongs to the thread; changes that a program made to it are kept.
NoNameServer::NoNameServer(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (host != "localhost" && ::inet_pton(AF_INET, host.c_str(), &four) != 1 &&
      ::inet_pton(AF_INET6, host.c_str(), &six) != 1)
    return;
  if ((_res.options & RES_INIT) == 0 && ::res_ninit(&_res) != 0) return;
  acts_ = true;
  num_servers_ = std::exchange(_res.nscount, 0);
}

NoNameServer::~NoNameServer() {
  if (acts_) _res.nscount = num_servers_;
}

}  // namespace deepspeed::comm
