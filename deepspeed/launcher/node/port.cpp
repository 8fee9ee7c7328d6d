#include "deepspeed/launcher/node/port.h"

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed::launcher {
namespace {

bool can_listen(int family, const sockaddr* address, socklen_t length) {
  const int listener = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return true;  // without this address family the port cannot be taken in it
  // A port with connections that are still closing counts as free, as it does for servers.
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  const bool free = ::bind(listener, address, length) == 0 && ::listen(listener, 1) == 0;
  const bool no_such_family = !free && errno == EADDRNOTAVAIL;
  ::close(listener);
  return free || no_such_family;
}

}  // namespace

bool port_is_free(int port) {
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  return can_listen(AF_INET, reinterpret_cast<const sockaddr*>(&any4), sizeof(any4)) &&
         can_listen(AF_INET6, reinterpret_cast<const sockaddr*>(&any6), sizeof(any6));
}

// Binds an abstract name, which is no file. The kernel forgets it when its last holder ends.
std::shared_ptr<PortClaim> PortClaim::take(int port) {
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "deepspeed-cpp-master-port-" + std::to_string(port);
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return nullptr;
    socket.close();
  }
  return std::shared_ptr<PortClaim>(new PortClaim(std::move(socket)));
}

PortChoice choose_master_port(const std::optional<int>& given, int default_port) {
  const auto claim_of = [](int port) { return port_is_free(port) ? PortClaim::take(port) : nullptr; };
  if (given) {
    if (auto claim = claim_of(*given)) return {*given, false, std::move(claim)};
    const std::string taker = port_is_free(*given) ? "" : " by " + taker_of_port(*given);
    raise<UsageError>("--master_port ", *given, " is in use", taker,
                      "; leave the flag out to have a free port chosen");
  }
  if (auto claim = claim_of(default_port)) return {default_port, false, std::move(claim)};
  // These ports lie below the range that the kernel uses for outgoing connections.
  constexpr int kCandidates = 2000;
  const int start = static_cast<int>(::getpid() % kCandidates);
  for (int i = 0; i < kCandidates; ++i) {
    const int port = default_port + 1 + (start + i) % kCandidates;
    if (auto claim = claim_of(port)) return {port, true, std::move(claim)};
  }
  raise<UsageError>("port ", default_port, " and the ", kCandidates,
                    " after it are in use; name a free one with --master_port");
}

}  // namespace deepspeed::launcher
