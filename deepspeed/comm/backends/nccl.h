// Makes NCCL backends through a table of functions (NcclBackends) in the CUDA library. Internal to this
// folder.
#pragma once

#include <array>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Holds two versions of NCCL, each as {major, minor}. The two must be equal: c10d's options hold a struct of
/// NCCL's, whose size differs between versions.
struct NcclVersions {
  std::array<int, 2> of_header;  // with which this library was compiled
  std::array<int, 2> of_torch;   // with which the torch that runs was compiled
};

struct NcclBackends {
  static constexpr const char* kName = "deepspeed_cuda_nccl_backends";

  /// Connects the ranks of a group, which share `store`, each on its current device.
  c10::intrusive_ptr<c10d::Backend> (*make)(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupDescription& group);
  NcclVersions (*versions)();
};

/// Connects the ranks of a group, each on the device of its local rank. They share `store`. Throws
/// NotSupportedError if there is no device, or if this library and torch were compiled for different versions
/// of NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group);

}  // namespace deepspeed::comm
