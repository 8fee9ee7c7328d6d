// Looks up the addresses of a host name, and the address at which others reach this machine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <netdb.h>

namespace deepspeed::comm {

/// Holds the addresses of a host and frees them.
class AddressList {
 public:
  /// Looks up `host`. `socket_type` is SOCK_STREAM or SOCK_DGRAM. `port` is a number as text, or null if only
  /// the host matters.
  AddressList(const std::string& host, const char* port, int socket_type) {
    addrinfo hints{};
    hints.ai_socktype = socket_type;
    addrinfo* found = nullptr;
    status_ = ::getaddrinfo(host.c_str(), port, &hints, &found);
    if (status_ == 0) first_.reset(found);
  }

  /// Returns why the look-up found no addresses; null if it found some.
  const char* error() const { return status_ == 0 ? nullptr : ::gai_strerror(status_); }
  /// Returns the first address of a list linked by `ai_next`; null if there are none.
  const addrinfo* first() const { return first_.get(); }

 private:
  int status_ = 0;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> first_{nullptr, ::freeaddrinfo};
};

/// Returns this machine's numeric address on the network towards `host`, or nothing if unknown. A host name
/// is less useful: Debian maps a machine's own name to 127.0.1.1, which no other machine reaches.
std::optional<std::string> own_address_towards(const std::string& host);

}  // namespace deepspeed::comm
