// The TCP port at which the ranks meet.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "deepspeed/base/descriptor.h"

namespace deepspeed::launcher {

/// Returns whether a server could listen on that port of this machine.
bool port_is_free(int port);

/// Keeps other launchers of this machine from choosing the port. The ranks listen on it only once they have
/// loaded their program. The claim ends with the process, however that ends.
class PortClaim {
 public:
  /// Claims a port. Returns null if another launcher has claimed it.
  static std::shared_ptr<PortClaim> take(int port);
  PortClaim(const PortClaim&) = delete;
  PortClaim& operator=(const PortClaim&) = delete;

 private:
  explicit PortClaim(Descriptor socket) : socket_(std::move(socket)) {}

  Descriptor socket_;  // unset if the machine has no such sockets
};

struct PortChoice {
  int port = 0;
  bool replaces_default = false;  ///< `port` is used because the default was taken
  std::shared_ptr<PortClaim> claim;
};

/// Chooses the given port, or the default. If the default is taken, it finds another free one. Throws
/// UsageError if the given port is taken.
PortChoice choose_master_port(const std::optional<int>& given, int default_port);

}  // namespace deepspeed::launcher
