// How rank 0 opens the socket of its store.
//
// listen_for_ranks() resolves DEEPSPEED_LISTEN_ADDR, or else MASTER_ADDR, to addresses, IPv4 first. Where the
// name means this machine alone but ranks come from others, it takes all addresses and warns. The first
// address at which it can listen is taken; where there is none, the error says why and names the way out.
#include "deepspeed/comm/job/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/job/address_list.h"

namespace deepspeed::comm {
namespace {

constexpr int kBacklog = 2048;  // ranks that come at the same moment

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  bool is_v4() const { return address.ss_family == AF_INET; }
};

struct ListenTarget {
  std::string host;
  const char* origin = "";  // for texts: the variable, where it is not the job's own address
};

ListenTarget listen_target(const Job& job) {
  if (const auto host = env::get(kListenVariable)) return {*host, "DEEPSPEED_LISTEN_ADDR "};
  return {job.master_addr};
}

template <class... Parts>
[[noreturn]] void fail_to_listen(const Job& job, const ListenTarget& target, const Parts&... parts) {
  raise<CommError>("rank ", job.rank, " of ", job.world_size, " cannot listen at ", target.origin,
                   target.host, ", port ", job.master_port, ": ", parts...);
}

// IPv4 first: a machine that resolves the name for itself may know that one alone.
std::vector<Endpoint> endpoints_of(const Job& job, const ListenTarget& target) {
  const AddressList list(target.host, std::to_string(job.master_port).c_str(), SOCK_STREAM);
  if (list.error() != nullptr)
    fail_to_listen(job, target, list.error(), "; expected an address or a known name");
  std::vector<Endpoint> endpoints;
  for (const auto* entry = list.first(); entry != nullptr; entry = entry->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, entry->ai_addr, entry->ai_addrlen);
    endpoint.length = entry->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  std::stable_partition(endpoints.begin(), endpoints.end(), [](const Endpoint& e) { return e.is_v4(); });
  return endpoints;
}

std::string numeric(const Endpoint& endpoint) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(endpoint.get(), endpoint.length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool is_loopback(const Endpoint& endpoint) {
  const auto text = numeric(endpoint);
  return text.starts_with("127.") || text.starts_with("::ffff:127.") || text == "::1";
}

bool is_numeric(const std::string& host) {
  in6_addr unused{};
  return ::inet_pton(AF_INET, host.c_str(), &unused) == 1 || host.find(':') != std::string::npos;
}

// All addresses, of both families where the machine has both.
std::vector<Endpoint> everywhere(int port) {
  Endpoint six, four;  // zeros: any address
  auto& any6 = reinterpret_cast<sockaddr_in6&>(six.address);
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  six.length = sizeof(any6);
  auto& any4 = reinterpret_cast<sockaddr_in&>(four.address);
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<uint16_t>(port));
  four.length = sizeof(any4);
  return {six, four};
}

// Debian, for one, maps a machine's own name to 127.0.1.1: the other machines come to another address.
bool hides_from_other_machines(const Job& job, const ListenTarget& target,
                               const std::vector<Endpoint>& endpoints) {
  return !job.is_one_machine() && !is_numeric(target.host) &&
         std::all_of(endpoints.begin(), endpoints.end(), is_loopback);
}

// A listening socket, or -1 with errno.
int listen_at(const Endpoint& endpoint) {
  const int fd = ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;  // connections of an earlier job that are still closing do not count
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, endpoint.get(), endpoint.length) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return -1;
}

Listener listener_at(int socket, const Endpoint& endpoint) {
  const auto text = numeric(endpoint);
  if (text == "0.0.0.0") return {socket, "127.0.0.1", "all addresses of this machine"};
  if (text == "::") return {socket, "::1", "all addresses of this machine"};
  return {socket, text, text};
}

[[noreturn]] void explain_failure(const Job& job, const ListenTarget& target, int reason) {
  if (reason == EADDRINUSE) {
    fail_to_listen(job, target,
                   "the port is taken by another program; choose a free one for all ranks, with MASTER_PORT "
                   "or `deepspeed --master_port`, or in init_method");
  }
  if (reason == EADDRNOTAVAIL) {
    fail_to_listen(job, target, "this is no address of this machine, where rank 0 runs; set MASTER_ADDR (or ",
                   "init_method) to one that is, or, where it is translated on the way, ", kListenVariable,
                   " to the one to listen at (0.0.0.0: all)");
  }
  fail_to_listen(job, target, std::strerror(reason));
}

}  // namespace

Listener listen_for_ranks(const Job& job) {
  const ListenTarget target = listen_target(job);
  std::vector<Endpoint> endpoints = endpoints_of(job, target);
  if (hides_from_other_machines(job, target, endpoints)) {
    log::warning("[comm] ", target.origin, target.host, " means this machine alone (",
                 numeric(endpoints.front()), "), so rank 0 listens at all its addresses; name one by its ",
                 "number, or set LOCAL_SIZE where all ranks are here");
    endpoints = everywhere(job.master_port);
  }
  int reason = EADDRNOTAVAIL;
  for (const Endpoint& endpoint : endpoints) {
    if (const int socket = listen_at(endpoint); socket >= 0) return listener_at(socket, endpoint);
    if (reason != EADDRINUSE) reason = errno;
  }
  explain_failure(job, target, reason);
}

}  // namespace deepspeed::comm
