// A process reads here which rank of which job it is, from the options and the environment, without any
// communication.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/job/init_options.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

/// Says where ranks meet: nowhere, at a socket of their machine, at an address, at the address of torchrun's
/// own store, over a file, or through the store of a group that others made.
enum class Rendezvous { kNone, kLocal, kTcp, kAgent, kFile, kGiven };

/// Describes the job that a process belongs to. A job of one rank needs no rendezvous.
struct Job {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool knows_local_rank = false;  // else the ranks of a larger world find their local place when they meet
  Rendezvous rendezvous = Rendezvous::kNone;
  std::string master_addr;  // kTcp: where rank 0 listens; kLocal: where it would
  int master_port = 0;
  std::string path;      // kFile
  std::string launcher;  // whose variables told the rank, where not RANK: "Open MPI"
  std::chrono::milliseconds timeout{0};
  bool shared_memory = false;  // between ranks of one machine, where they can
  // By these collectives of groups with ranks on several nodes choose their way (agreed_links.h); nothing:
  // they go as if there were no nodes.
  std::optional<LinkFigures> links;
  int ranks_per_node = 1;  // consecutive ranks; known where `links` are

  /// Says whether all ranks run on this machine.
  bool is_one_machine() const;
  /// Returns the other ranks of this machine, where its ranks are consecutive.
  std::vector<int> neighbours() const;
};

/// Reads DEEPSPEED_SHARED_MEMORY, 1 or 0: whether ranks of one machine are to share memory. Throws UsageError
/// for another value.
bool wants_shared_memory();

/// This variable names another address than MASTER_ADDR for rank 0 to listen at.
constexpr const char* kListenVariable = "DEEPSPEED_LISTEN_ADDR";

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE (or LOCAL_WORLD_SIZE), MASTER_ADDR, MASTER_PORT,
/// DEEPSPEED_TIMEOUT and, with `auto_mpi_discovery`, the variables of Open MPI, MPICH, Intel MPI, MVAPICH2,
/// Slurm and PMIx, DEEPSPEED_LISTEN_ADDR and TORCHELASTIC_USE_AGENT_STORE. Throws UsageError naming the
/// variable or option that is missing, malformed or out of range.
DEEPSPEED_API Job describe_job(const InitOptions& options);

}  // namespace deepspeed::comm
