// The hostfile: lines `HOST slots=N`, blank lines and lines that start with # are skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace deepspeed::launcher {

/// A machine and the numbers of the slots (GPUs, or places for ranks on the CPU) to use there.
struct HostSlots {
  std::string host;
  std::vector<int> slots;

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// The machines in the order of the hostfile, which is the order of the ranks.
using ResourcePool = std::vector<HostSlots>;

/// Returns {0, 1, ..., n - 1}.
std::vector<int> first_slots(int n);

/// Parses a hostfile. `name` is the file's name in messages. Throws UsageError with the line's number for a
/// bad line, a host that stands there twice, and for a file without hosts.
ResourcePool parse_hostfile(const std::string& text, const std::string& name);

/// Reads a hostfile; nothing where it does not exist. Throws IoError where it cannot be read.
std::optional<ResourcePool> read_hostfile(const std::string& path);

}  // namespace deepspeed::launcher
