// The hostfile: lines `HOST slots=N`, blank lines and lines that start with # are skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// A machine and the numbers of the slots (GPUs, or places for ranks on the CPU) to use there.
struct HostSlots {
  std::string host;
  std::vector<int> slots;

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// The machines in the order of the hostfile, which is the order of the ranks.
using ResourcePool = std::vector<HostSlots>;

/// Throws UsageError, with `where` in front, for a name that no host has: ssh would take it for an option, or
/// pdsh for a pattern. Names are [USER@]NAME of letters, digits and -._: that begin with no sign.
DEEPSPEED_API void check_host_name(const std::string& host, const std::string& where);

/// Reads {host: [slots]} as JSON in base64, the form in which DeepSpeed hands a pool on. Throws UsageError
/// for another text.
DEEPSPEED_API ResourcePool decode_world_info(const std::string& text);
/// Writes what decode_world_info() reads.
DEEPSPEED_API std::string encode_world_info(const ResourcePool& pool);

/// Returns {0, 1, ..., n - 1}.
std::vector<int> first_slots(int n);

/// Parses a hostfile. `name` is the file's name in messages. Throws UsageError with the line's number for a
/// bad line, a name that no host has, slots=0, a host that stands there twice, and for a file without hosts.
DEEPSPEED_API ResourcePool parse_hostfile(const std::string& text, const std::string& name);

/// Reads a hostfile; nothing where it does not exist. Throws IoError where it cannot be read.
std::optional<ResourcePool> read_hostfile(const std::string& path);

}  // namespace deepspeed::launcher
