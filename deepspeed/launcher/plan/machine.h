// This machine's names, cores and GPUs, and how ranks share its cores. They come from the kernel's files, so
// no CUDA library is loaded.
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

/// Lists this machine's numeric addresses, IPv4 first. It leaves out loopback and link-local addresses, which
/// other machines cannot use.
std::vector<std::string> addresses_of_this_machine();

/// Returns whether `host` is an address of this machine, or resolves to one.
bool has_address(const std::string& host);

/// Reads what the machine has. /proc, /dev and /sys are looked up below `root`.
Machine read_machine(const std::filesystem::path& root = "/");

/// Reads cores in the order of the text: numbers and ranges FIRST-LAST, separated by commas. Throws
/// UsageError, naming --bind_core_list, for any other text, a range that runs backwards, or a repeated core.
std::vector<int> parse_core_list(const std::string& text);

/// Gives each rank cores.size() / num_ranks neighbouring cores. The rest stays unused, so that all ranks are
/// equally fast. Throws UsageError if there are fewer cores than ranks.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int num_ranks);

}  // namespace deepspeed::launcher
