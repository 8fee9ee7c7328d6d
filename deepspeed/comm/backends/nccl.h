// Makes NCCL backends; twins in nccl/ (built with CUDA) and no_nccl/. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Connects the `size` ranks that share `store`. Throws NotSupportedError in a build without CUDA and where
/// device::num_cuda_devices() is 0.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size);

}  // namespace deepspeed::comm
