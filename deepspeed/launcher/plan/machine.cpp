// Reads what this machine has. read_machine() takes names and addresses from the system, cores from the
// scheduler's mask and /sys, and GPUs from /proc and /dev.
#include "deepspeed/launcher/plan/machine.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
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

/// Picks one logical CPU for each core. Siblings have the same text in their file, such as "0,4" or "0-1".
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
  // A container may have the devices but not the driver's folder in /proc.
  machine.num_gpus =
      std::max(count_entries(root / "proc/driver/nvidia/gpus", ""), count_entries(root / "dev", "nvidia"));
  return machine;
}

std::vector<std::string> addresses_of_this_machine() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::vector<std::string> ipv4, ipv6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const in_addr& address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
      const uint32_t number = ntohl(address.s_addr);
      if (number >> 24 == 127 || number >> 16 == 0xA9FE) continue;
      ipv4.emplace_back(::inet_ntop(AF_INET, &address, text, sizeof(text)));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      ipv6.emplace_back(::inet_ntop(AF_INET6, &address, text, sizeof(text)));
    }
  }
  ::freeifaddrs(list);
  ipv4.insert(ipv4.end(), ipv6.begin(), ipv6.end());
  return ipv4;
}

bool has_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  bool found = false;
  // The kernel lets a socket bind only to an address of this machine.
  for (const addrinfo* entry = list; entry != nullptr && !found; entry = entry->ai_next) {
    const int probe = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) continue;
    found = ::bind(probe, entry->ai_addr, entry->ai_addrlen) == 0;
    ::close(probe);
  }
  ::freeaddrinfo(list);
  return found;
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
