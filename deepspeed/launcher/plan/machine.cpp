#include "deepspeed/launcher/plan/machine.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <sched.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of_this_machine() {
  std::vector<std::string> names = {"localhost", "127.0.0.1", "::1"};
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') {
    names.emplace_back(name);
    names.push_back(split(name, '.').front());
  }
  return names;
}

std::vector<int> allowed_cores() {
  // A machine may have more CPUs than cpu_set_t holds: grow the set until the kernel accepts its size.
  for (int capacity = 1024; capacity <= 65536; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const int status = ::sched_getaffinity(0, bytes, set);
    std::vector<int> cores;
    for (int core = 0; status == 0 && core < capacity; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) cores.push_back(core);
    }
    CPU_FREE(set);
    if (status == 0) return cores;
  }
  raise<IoError>("the kernel does not tell which cores this process may use");
}

/// Picks one logical CPU a core: siblings share a file's text such as "0,4" or "0-1".
std::vector<int> first_of_each_core(const std::vector<int>& cores, const fs::path& root) {
  std::set<std::string> seen;
  std::vector<int> firsts;
  for (const int core : cores) {
    std::ifstream file(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(core)) /
                       "topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings) || seen.insert(siblings).second) firsts.push_back(core);
  }
  return firsts;
}

int count_entries(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool fits =
        name.starts_with(prefix) && (prefix.empty() || parse_whole_number(name.substr(prefix.size())));
    if (fits) ++count;
  }
  return count;
}

}  // namespace

bool Machine::is_this(const std::string& host) const {
  return std::find(host_names.begin(), host_names.end(), host) != host_names.end();
}

Machine read_machine(const fs::path& root) {
  Machine machine;
  machine.host_names = names_of_this_machine();
  machine.cores = allowed_cores();
  machine.physical_cores = first_of_each_core(machine.cores, root);
  // Containers may show the devices without the driver's folder in /proc.
  machine.num_gpus =
      std::max(count_entries(root / "proc/driver/nvidia/gpus", ""), count_entries(root / "dev", "nvidia"));
  return machine;
}

namespace {

constexpr int kMaxCore = 65535;

}  // namespace

std::vector<int> parse_core_list(const std::string& text) {
  std::vector<int> cores;
  for (const std::string& part : split(text, ',')) {
    const auto ends = split(part, '-');
    const auto first = parse_whole_number(ends.front());
    const auto last = parse_whole_number(ends.back());
    if (ends.size() > 2 || !first || !last || *last > kMaxCore || *first > *last) {
      raise<UsageError>("--bind_core_list: '", part, "' in '", text,
                        "', expected cores and rising ranges such as 1,3-5");
    }
    for (int core = *first; core <= *last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        raise<UsageError>("--bind_core_list: core ", core, " stands in '", text,
                          "' more than once, expected once");
      }
      cores.push_back(core);
    }
  }
  return cores;
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int num_ranks) {
  const int share = static_cast<int>(cores.size()) / num_ranks;
  if (share == 0) {
    raise<UsageError>("--bind_cores_to_rank: ", cores.size(), " cores for ", num_ranks,
                      " ranks, expected at least one each; start fewer ranks or leave the flag out");
  }
  std::vector<std::vector<int>> shares;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(rank) * share;
    shares.emplace_back(begin, begin + share);
  }
  return shares;
}

}  // namespace deepspeed::launcher
