// Opens the socket of rank 0's store.
//
// listen_for_ranks() resolves DEEPSPEED_LISTEN_ADDR, or else MASTER_ADDR, to addresses, IPv4 first. If the
// name means only this machine but ranks come from others, it listens at all addresses and warns. It uses the
// first address that works. If none does, the error gives the reason and the way out.
// listen_on_this_machine() uses a name that no network knows, and also reserves the port.
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
#include "deepspeed/base/hash.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/comm/job/address_list.h"

namespace deepspeed::comm {
namespace {

struct ListenTarget {
  std::string host;
  const char* origin = "";  // for texts: the variable, if it is not the job's own address
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

std::vector<StoreAddress> endpoints_of(const AddressList& list) {
  std::vector<StoreAddress> endpoints;
  for (const auto* entry = list.first(); entry != nullptr; entry = entry->ai_next) {
    StoreAddress endpoint;
    std::memcpy(&endpoint.address, entry->ai_addr, entry->ai_addrlen);
    endpoint.length = entry->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  // A machine that resolves the name for itself may know only IPv4.
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const StoreAddress& e) { return e.address.ss_family == AF_INET; });
  return endpoints;
}

std::vector<StoreAddress> endpoints_of(const Job& job, const ListenTarget& target) {
  const AddressList list(target.host, std::to_string(job.master_port).c_str(), SOCK_STREAM);
  if (list.error() != nullptr)
    fail_to_listen(job, target, list.error(), "; expected an address or a known name");
  return endpoints_of(list);
}

bool is_loopback(const StoreAddress& endpoint) {
  const auto text = numeric_host(endpoint);
  return text.starts_with("127.") || text.starts_with("::ffff:127.") || text == "::1";
}

bool is_numeric(const std::string& host) {
  in6_addr unused{};
  return ::inet_pton(AF_INET, host.c_str(), &unused) == 1 || host.find(':') != std::string::npos;
}

// Returns all addresses, of both families if the machine has both.
std::vector<StoreAddress> everywhere(int port) {
  StoreAddress six, four;  // zeros: any address
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

// Returns whether other machines use another address. For example, Debian maps a machine's own name to
// 127.0.1.1.
bool hides_from_other_machines(const Job& job, const ListenTarget& target,
                               const std::vector<StoreAddress>& endpoints) {
  return !job.is_one_machine() && !is_numeric(target.host) &&
         std::all_of(endpoints.begin(), endpoints.end(), is_loopback);
}

// Returns the listener. If it listens at all addresses, this machine connects by loopback.
Listener listener_at(Descriptor socket, StoreAddress endpoint) {
  const auto text = numeric_host(endpoint);
  if (text != "0.0.0.0" && text != "::") return {std::move(socket), endpoint, {}, text};
  if (text == "::") {
    reinterpret_cast<sockaddr_in6&>(endpoint.address).sin6_addr = in6addr_loopback;
  } else {
    reinterpret_cast<sockaddr_in&>(endpoint.address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  return {std::move(socket), endpoint, {}, "all addresses of this machine"};
}

// Reserves the port by a bound socket. Returns none if another program already has the port.
Descriptor reserve_port(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int on = 1, off = 0;  // ignores connections of an earlier job that are still closing
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &off, sizeof(off));
  return socket;
}

[[noreturn]] void explain_failure(const Job& job, const ListenTarget& target, int reason) {
  if (reason == EADDRINUSE) {
    fail_to_listen(job, target, "the port is taken by ", taker_of_port(job.master_port),
                   "; choose a free one for all ranks, with MASTER_PORT "
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
  std::vector<StoreAddress> endpoints = endpoints_of(job, target);
  if (hides_from_other_machines(job, target, endpoints)) {
    log::warning("[comm] ", target.origin, target.host, " means this machine alone (",
                 numeric_host(endpoints.front()),
                 "), so rank 0 listens at all its addresses; name one by its ",
                 "number, or set LOCAL_SIZE where all ranks are here");
    endpoints = everywhere(job.master_port);
  }
  int reason = EADDRNOTAVAIL;
  for (const StoreAddress& endpoint : endpoints) {
    if (auto socket = listen_at(endpoint)) return listener_at(std::move(socket), endpoint);
    if (reason != EADDRINUSE) reason = errno;
  }
  explain_failure(job, target, reason);
}

StoreAddress local_address(const Job& job) {
  std::string name = message("deepspeed-cpp/", ::geteuid(), "/", job.master_port);
  if (const auto run = env::get("TORCHELASTIC_RUN_ID")) {
    Hash hash;
    hash.add(*run);
    name += message("/", hash.value(), "/", env::get("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return local_store_address(name);
}

Listener listen_on_this_machine(const Job& job) {
  const StoreAddress address = local_address(job);
  if (auto socket = listen_at(address)) {
    return {std::move(socket), address, reserve_port(job.master_port), "a socket of this machine"};
  }
  const int reason = errno;
  std::string why_not;
  if (reason == EADDRINUSE && is_of_another_user(address, why_not))
    fail_to_listen(job, {job.master_addr}, why_not);
  explain_failure(job, {job.master_addr}, reason);
}

std::vector<StoreAddress> addresses_of(const std::string& host, int port) {
  return endpoints_of(AddressList(host, std::to_string(port).c_str(), SOCK_STREAM));
}

}  // namespace deepspeed::comm
