// The TCP port at which the ranks meet.
#pragma once

#include <optional>

namespace deepspeed::launcher {

/// Whether a server could listen on that port of this machine now.
bool port_is_free(int port);

struct PortChoice {
  int port = 0;
  bool replaces_default = false;  ///< the default was taken and `port` stands in for it
};

/// The given port, or the default, or where the default is taken another free one. Throws UsageError where
/// the given port is taken.
PortChoice choose_master_port(const std::optional<int>& given, int default_port);

}  // namespace deepspeed::launcher
