#include "deepspeed/comm/job/local_place.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"

namespace deepspeed::comm {
namespace {

std::string machine_key(int rank) { return "machine/" + std::to_string(rank); }

}  // namespace

std::string own_machine() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code none;  // without /proc, the host name must suffice
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", none).string();
  return std::string(host.data()) + "/" + boot + "/" + network;
}

void find_local_place(Job& job, c10d::Store& store, const std::string& machine) {
  try {
    store.set(machine_key(job.rank), machine);
    if (job.knows_local_rank) return;
    int local_size = 0;
    for (int rank = 0; rank < job.world_size; ++rank) {
      const auto bytes = store.get(machine_key(rank));
      if (std::string(bytes.begin(), bytes.end()) != machine) continue;
      if (rank == job.rank) job.local_rank = local_size;
      ++local_size;
    }
    job.local_size = local_size;
  } catch (const std::exception& error) {
    raise<CommError>("rank ", job.rank, " of ", job.world_size,
                     " could not find out which ranks share its machine: ", first_line(error.what()),
                     "; set LOCAL_RANK");
  }
}

}  // namespace deepspeed::comm
