// Defines the arguments of init_distributed().
#pragma once

#include <chrono>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

/// Holds the arguments, with the names and defaults of DeepSpeed's `init_distributed`.
struct DEEPSPEED_API InitOptions {
  std::string dist_backend = {};  // "": nccl if this build and machine support a GPU, otherwise gloo
  bool auto_mpi_discovery =
      true;                      // if RANK is unset, takes rank and size from the variables of mpirun or srun
  int distributed_port = 29500;  // used if MASTER_PORT is unset
  bool verbose = true;
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);  // DEEPSPEED_TIMEOUT (minutes) overrides the default
  std::string init_method = {};  // "" or env://, tcp://HOST:PORT, file:///PATH
  int rank = -1;                 // -1: the variable RANK
  int world_size = -1;           // -1: the variable WORLD_SIZE
};

}  // namespace deepspeed::comm
