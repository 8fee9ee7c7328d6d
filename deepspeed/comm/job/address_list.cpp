#include "deepspeed/comm/job/address_list.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deepspeed::comm {
namespace {

// Connecting a datagram socket sends nothing, but selects the route and thus this end's address.
std::optional<std::string> address_towards(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  char text[NI_MAXHOST];
  const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                     ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0,
                                   NI_NUMERICHOST) == 0;
  ::close(fd);
  return found ? std::optional<std::string>(text) : std::nullopt;
}

}  // namespace

std::optional<std::string> own_address_towards(const std::string& host) {
  const AddressList list(host, "9", SOCK_DGRAM);
  for (const auto* target = list.first(); target != nullptr; target = target->ai_next) {
    if (auto address = address_towards(*target)) return address;
  }
  return std::nullopt;
}

}  // namespace deepspeed::comm
