// What this machine has: names, cores, GPUs, and how its cores are shared out among ranks. Read from the
// kernel's files, so that no CUDA library is loaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace deepspeed::launcher {

struct Machine {
  std::vector<std::string>
      host_names;                   ///< localhost, its addresses, and the machine's own name, long and short
  std::vector<int> cores;           ///< logical CPUs that this process may run on
  std::vector<int> physical_cores;  ///< the first logical CPU of each core among them
  int num_gpus = 0;                 ///< NVIDIA GPUs that the driver shows here

  bool is_this(const std::string& host) const;
};

/// Lists this machine's addresses as numbers, those that reach no other machine (loopback, link-local) left
/// out, IPv4 first.
std::vector<std::string> addresses_of_this_machine();

/// Whether `host`, a name or an address that this machine resolves, is one of its own addresses.
bool has_address(const std::string& host);

/// Reads what the machine has. `root` is the root of the file system in which /proc, /dev and /sys are looked
/// up.
Machine read_machine(const std::filesystem::path& root = "/");

/// Reads cores in the order of the text: numbers and ranges FIRST-LAST between commas. Throws UsageError,
/// naming
/// --bind_core_list, for anything else, a range that runs backwards, and a core that stands there twice.
std::vector<int> parse_core_list(const std::string& text);

/// Gives each rank cores.size() / num_ranks neighbouring cores; a rest stays unused, so that all ranks are
/// equally fast. Throws UsageError where there are fewer cores than ranks.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int num_ranks);

}  // namespace deepspeed::launcher
