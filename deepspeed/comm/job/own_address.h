// This file finds the address by which others reach this machine. Internal to this folder.
#pragma once

#include <optional>
#include <string>

namespace deepspeed::comm {

/// Returns the numeric address of this machine on the network that leads to `host`, or nothing where that is
/// unknown. A hostname says less: Debian maps a machine's own to 127.0.1.1, which no other machine reaches.
std::optional<std::string> own_address_towards(const std::string& host);

}  // namespace deepspeed::comm
