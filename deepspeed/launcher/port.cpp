#include "deepspeed/launcher/port.h"

#include <cerrno>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kPortWhere = "launcher.port";

bool can_listen(int family, const sockaddr* address, socklen_t length) {
  const int listener = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return true;  // a machine without this family cannot have the port taken in it
  // As servers do: a port whose last connections are still closing counts as free.
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

PortChoice choose_master_port(const std::optional<int>& given, int default_port) {
  if (given) {
    if (port_is_free(*given)) return {*given, false};
    raise<UsageError>(kPortWhere, "--master_port ", *given,
                      " is in use; leave the flag out to have a free port chosen");
  }
  if (port_is_free(default_port)) return {default_port, false};
  // Below the range that the kernel hands out to outgoing connections, and starting at different places for
  // launchers that start at the same time.
  constexpr int kCandidates = 2000;
  const int start = static_cast<int>(::getpid() % kCandidates);
  for (int i = 0; i < kCandidates; ++i) {
    const int port = default_port + 1 + (start + i) % kCandidates;
    if (port_is_free(port)) return {port, true};
  }
  raise<UsageError>(kPortWhere, "port ", default_port, " and the ", kCandidates,
                    " after it are in use; name a free one with --master_port");
}

}  // namespace deepspeed::launcher
