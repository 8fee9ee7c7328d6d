// Derives the job from options and environment.
//
// describe_job() reads the timeout, then the rank and size. Options take precedence over RANK and WORLD_SIZE;
// another launcher's variables are used only if no rank is given. Then it reads the rendezvous. A world of
// one has none. Otherwise init_method names a file or an address; without it the address is MASTER_ADDR,
// loopback on one machine, or the host that the launcher gave. If the address means one machine, the ranks
// meet at a socket that no other user and no network can reach. MASTER_PORT then only distinguishes jobs.
#include "deepspeed/comm/job/job.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/job/discovery.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

std::optional<int> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = env::get_int(name)) return static_cast<int>(*value);
  }
  return std::nullopt;
}

// Returns the option, or else the variable.
std::optional<int> find(int option, const char* name) {
  return option >= 0 ? std::optional<int>(option) : first_set({name});
}

void find_place(const InitOptions& options, Job& job) {
  auto rank = find(options.rank, "RANK");
  auto size = find(options.world_size, "WORLD_SIZE");
  auto local_rank = first_set({"LOCAL_RANK"});
  auto local_size = first_set({"LOCAL_SIZE", "LOCAL_WORLD_SIZE"});
  // Other launchers matter only if RANK is unset, so that `deepspeed` inside an MPI or Slurm job takes
  // precedence.
  if (options.auto_mpi_discovery && !rank) {
    if (const auto place = discover_place()) {
      rank = place->rank;
      if (!size) size = place->world_size;
      if (!local_rank) local_rank = place->local_rank;
      if (!local_size) local_size = place->local_size;
      job.launcher = place->launcher;
      job.master_addr = place->master_addr;
    }
  }
  if (rank.has_value() != size.has_value()) {
    raise<UsageError>("the variable ", rank ? "WORLD_SIZE" : "RANK", " is not set, but ",
                      rank ? "the rank is " : "the world size is ", rank ? *rank : *size,
                      "; set both, or start the program with `deepspeed`");
  }
  job.rank = rank.value_or(0);
  job.world_size = size.value_or(1);
  job.local_rank = local_rank.value_or(0);
  job.knows_local_rank = local_rank.has_value();
  job.local_size = local_size.value_or(1);
  if (job.world_size < 1) {
    raise<UsageError>("WORLD_SIZE is ", job.world_size, ", expected 1 or more");
  }
  if (job.rank < 0 || job.rank >= job.world_size) {
    raise<UsageError>("RANK is ", job.rank, ", expected 0 to ", job.world_size - 1, " for WORLD_SIZE ",
                      job.world_size);
  }
  if (job.local_rank < 0 || job.local_size < 1) {
    raise<UsageError>("LOCAL_RANK is ", job.local_rank, " and LOCAL_SIZE ", job.local_size,
                      ", expected 0 or more, and 1 or more");
  }
}

int checked_port(const std::string& where, int64_t port) {
  if (port < 1 || port > 65535) {
    raise<UsageError>(where, " names port ", port, ", expected 1 to 65535");
  }
  return static_cast<int>(port);
}

void read_tcp_address(const std::string& method, Job& job) {
  const auto rest = method.substr(std::string("tcp://").size());
  const auto colon = rest.rfind(':');
  int64_t port = 0;
  const auto* end = rest.data() + rest.size();
  if (colon == std::string::npos || colon == 0 ||
      std::from_chars(rest.data() + colon + 1, end, port).ptr != end || colon + 1 == rest.size()) {
    raise<UsageError>("init_method is '", method, "', expected tcp://HOST:PORT");
  }
  const bool in_brackets = rest[0] == '[' && rest[colon - 1] == ']';  // as in tcp://[::1]:29500
  job.master_addr = in_brackets ? rest.substr(1, colon - 2) : rest.substr(0, colon);
  job.master_port = checked_port("init_method '" + method + "'", port);
}

void read_environment_address(const InitOptions& options, Job& job) {
  const auto discovered = std::exchange(job.master_addr, "");
  const auto address = env::get("MASTER_ADDR");
  if (address) {
    job.master_addr = *address;
  } else if (job.is_one_machine()) {
    job.master_addr = "127.0.0.1";
  } else if (!discovered.empty()) {
    job.master_addr = discovered;
  } else {
    raise<UsageError>("the variable MASTER_ADDR is not set, expected the host of rank 0 of the ",
                      job.world_size,
                      " ranks; set it for all of them (Open MPI: mpirun -x MASTER_ADDR=HOST), or start "
                      "the program with `deepspeed`");
  }
  job.master_port =
      checked_port("MASTER_PORT", env::get_int("MASTER_PORT").value_or(options.distributed_port));
}

// An explicit address to listen at is always used. torchrun itself listens at the address in its variables.
Rendezvous rendezvous_at_address(const Job& job, bool is_of_environment) {
  if (env::get(kListenVariable)) return Rendezvous::kTcp;
  if (job.is_one_machine()) return Rendezvous::kLocal;
  const bool has_agent = is_of_environment && env::get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return has_agent ? Rendezvous::kAgent : Rendezvous::kTcp;
}

void find_rendezvous(const InitOptions& options, Job& job) {
  if (job.world_size == 1) return;
  const auto& method = options.init_method;
  if (method.empty() || method == "env://") {
    read_environment_address(options, job);
    job.rendezvous = rendezvous_at_address(job, /*is_of_environment=*/true);
  } else if (method.starts_with("tcp://")) {
    read_tcp_address(method, job);
    job.rendezvous = rendezvous_at_address(job, /*is_of_environment=*/false);
  } else if (method.starts_with("file://")) {
    job.rendezvous = Rendezvous::kFile;
    job.path = method.substr(std::string("file://").size());
    if (!job.path.starts_with('/')) {
      raise<UsageError>("init_method is '", method, "', expected an absolute path: file:///PATH");
    }
  } else {
    raise<UsageError>("init_method is '", method, "', expected env://, tcp://HOST:PORT or file:///PATH");
  }
}

milliseconds find_timeout(const InitOptions& options) {
  auto timeout = options.timeout;
  if (timeout == InitOptions().timeout) {
    if (const auto minutes = env::get_int("DEEPSPEED_TIMEOUT")) timeout = std::chrono::minutes(*minutes);
  }
  if (timeout < milliseconds(1)) {
    raise<UsageError>("the timeout (or DEEPSPEED_TIMEOUT, in minutes) is ", timeout.count(),
                      " ms, expected more than 0");
  }
  return timeout;
}

}  // namespace

bool Job::is_one_machine() const {
  return local_size == world_size || master_addr == "localhost" || master_addr == "::1" ||
         master_addr.starts_with("127.");
}

std::vector<int> Job::neighbours() const {
  std::vector<int> ranks;
  const int first = std::max(rank - local_rank, 0);
  for (int other = first; other < std::min(first + local_size, world_size); ++other) {
    if (other != rank) ranks.push_back(other);
  }
  return ranks;
}

bool wants_shared_memory() {
  const auto value = env::get_int("DEEPSPEED_SHARED_MEMORY").value_or(1);
  if (value == 0 || value == 1) return value == 1;
  raise<UsageError>("the variable DEEPSPEED_SHARED_MEMORY is ", value,
                    ", expected 1 (ranks of one machine share memory) or 0 (they use sockets)");
}

Job describe_job(const InitOptions& options) {
  Job job;
  job.shared_memory = wants_shared_memory();
  job.timeout = find_timeout(options);
  find_place(options, job);
  find_rendezvous(options, job);
  return job;
}

}  // namespace deepspeed::comm
