// Determines a process's job and rank, from options and environment, without communication.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/job/init_options.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

/// Tells where ranks meet. kNone: nowhere. kLocal: at a socket of their machine. kTcp: at an address. kAgent:
/// at the address of torchrun's own store. kFile: through a file. kGiven: through the store of an adopted
/// group.
enum class Rendezvous { kNone, kLocal, kTcp, kAgent, kFile, kGiven };

/// Describes the job that a process belongs to. A job of one rank needs no rendezvous.
struct Job {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool knows_local_rank = false;  // if false, ranks of a larger world find their local rank when they meet
  Rendezvous rendezvous = Rendezvous::kNone;
  std::string master_addr;  // kTcp: address at which rank 0 listens; kLocal: not listened at
  int master_port = 0;
  std::string path;      // kFile
  std::string launcher;  // whose variables gave the rank, if not RANK: "Open MPI"
  std::chrono::milliseconds timeout{0};
  bool shared_memory = false;  // between ranks of one machine, if possible
  // Decides how collectives of groups on several nodes communicate (agreed_links.h). Unset: as if there were
  // no nodes.
  std::optional<LinkFigures> links;
  int ranks_per_node = 1;  // consecutive ranks; known if `links` are set

  /// Returns whether all ranks run on this machine.
  bool is_one_machine() const;
  /// Returns the other ranks of this machine, assuming that its ranks are consecutive.
  std::vector<int> neighbours() const;
};

/// Returns whether ranks of one machine should share memory. Reads DEEPSPEED_SHARED_MEMORY, 1 (default) or 0.
/// Throws UsageError for any other value.
bool wants_shared_memory();

/// Names the variable with rank 0's listening address, if that differs from MASTER_ADDR.
constexpr const char* kListenVariable = "DEEPSPEED_LISTEN_ADDR";

/// Reads the job from the options and the environment. The variables are RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_SIZE (or LOCAL_WORLD_SIZE), MASTER_ADDR, MASTER_PORT, DEEPSPEED_TIMEOUT, DEEPSPEED_LISTEN_ADDR,
/// DEEPSPEED_SHARED_MEMORY and TORCHELASTIC_USE_AGENT_STORE. With `auto_mpi_discovery` also those of Open
/// MPI, MPICH, Intel MPI, MVAPICH2, Slurm and PMIx. Throws UsageError naming the variable or option that is
/// missing, malformed or out of range.
DEEPSPEED_API Job describe_job(const InitOptions& options);

}  // namespace deepspeed::comm
