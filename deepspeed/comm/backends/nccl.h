// Makes NCCL backends through a table of the CUDA library. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

struct NcclBackends {
  static constexpr const char* kName = "deepspeed_cuda_nccl_backends";

  /// Connects the ranks of a group, which share `store`, each on its current device.
  c10::intrusive_ptr<c10d::Backend> (*make)(const Job& job, const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupDescription& group);
};

/// Connects the ranks of a group, each on the device of its local rank. They share `store`. Throws
/// NotSupportedError if device::num_cuda_devices() is 0.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group);

}  // namespace deepspeed::comm
