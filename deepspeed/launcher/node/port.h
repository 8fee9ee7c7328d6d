// The TCP port at which the ranks meet.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "deepspeed/base/descriptor.h"

namespace deepspeed::launcher {

/// Whether a server could listen on that port of this machine now.
bool port_is_free(int port);

/// Keeps other launchers of this machine from choosing the port while it lives: the ranks listen there only
/// once they have loaded their program. It ends with the process, however that ends.
class PortClaim {
 public:
  /// Claims a port; null where another launcher has claimed it.
  static std::shared_ptr<PortClaim> take(int port);
  PortClaim(const PortClaim&) = delete;
  PortClaim& operator=(const PortClaim&) = delete;

 private:
  explicit PortClaim(Descriptor socket) : socket_(std::move(socket)) {}

  Descriptor socket_;  // none if the machine has no such sockets
};

struct PortChoice {
  int port = 0;
  bool replaces_default = false;  ///< the default was taken and `port` stands in for it
  std::shared_ptr<PortClaim> claim;
};

/// Chooses the given port, or the default, or where the default is taken another free one. Throws UsageError
/// where the given port is taken.
PortChoice choose_master_port(const std::optional<int>& given, int default_port);

}  // namespace deepspeed::launcher
