// The hostfile has lines `HOST slots=N`. Blank lines and lines that start with # are skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::launcher {

/// Holds a machine and its slots to use. A slot is a GPU, or a place for a rank on the CPU.
struct HostSlots {
  std::string host;
  std::vector<int> slots;

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// Holds the machines in the order of the hostfile, and so of the ranks.
using ResourcePool = std::vector<HostSlots>;

/// Throws UsageError for a name that no host can have. ssh would take such a name for an option, or pdsh for
/// a pattern. `where` is the beginning of the error text. Names are [USER@]NAME. Both parts have letters,
/// digits and -._: and do not begin with - . or :.
DEEPSPEED_API void check_host_name(const std::string& host, const std::string& where);

/// Reads {host: [slots]} as JSON in base64, which is DeepSpeed's format. Throws UsageError for any other
/// text.
DEEPSPEED_API ResourcePool decode_world_info(const std::string& text);
/// Writes what decode_world_info() reads.
DEEPSPEED_API std::string encode_world_info(const ResourcePool& pool);

/// Returns {0, 1, ..., n - 1}.
std::vector<int> first_slots(int n);

/// Parses a hostfile. `name` is the file's name in error texts. Throws UsageError with the line number for a
/// bad line, an impossible host name, slots=0, or a host listed twice; also for a file without hosts.
DEEPSPEED_API ResourcePool parse_hostfile(const std::string& text, const std::string& name);

/// Reads a hostfile. Returns nothing if it does not exist. Throws IoError if it cannot be read.
std::optional<ResourcePool> read_hostfile(const std::string& path);

}  // namespace deepspeed::launcher
