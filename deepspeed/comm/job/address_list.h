// What the system knows of addresses: those of a host's name, and by which one others reach this machine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <netdb.h>

namespace deepspeed::comm {

/// Holds the addresses of a host and frees them.
class AddressList {
 public:
  /// socket_type: SOCK_STREAM or SOCK_DGRAM; port: a number as text, null where only the host matters.
  AddressList(const std::string& host, const char* port, int socket_type) {
    addrinfo hints{};
    hints.ai_socktype = socket_type;
    addrinfo* found = nullptr;
    status_ = ::getaddrinfo(host.c_str(), port, &hints, &found);
    if (status_ == 0) first_.reset(found);
  }

  /// Says why there are none; null where there are some.
  const char* error() const { return status_ == 0 ? nullptr : ::gai_strerror(status_); }
  /// Returns the head of the list, which `ai_next` goes through; null where there are none.
  const addrinfo* first() const { return first_.get(); }

 private:
  int status_ = 0;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> first_{nullptr, ::freeaddrinfo};
};

/// Returns the numeric address of this machine on the network that leads to `host`, or nothing where that is
/// unknown. A hostname says less: Debian maps a machine's own to 127.0.1.1, which no other machine reaches.
std::optional<std::string> own_address_towards(const std::string& host);

}  // namespace deepspeed::comm
