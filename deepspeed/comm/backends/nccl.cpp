#include "deepspeed/comm/backends/nccl.h"

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/cuda_library.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::comm {
namespace {

// By default NCCL's watchdog ends the process when an operation times out. Here it only aborts the
// communicator (mode 2), and the wait for the operation throws.
void configure_watchdog() {
  if (!env::get("TORCH_NCCL_ASYNC_ERROR_HANDLING")) env::set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2");
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size) {
  const int devices = device::num_cuda_devices();
  if (devices == 0) {
    raise<NotSupportedError>("dist_backend is 'nccl', but ", device::why_no_device(), "; or use 'gloo'");
  }
  configure_watchdog();
  device::set_cuda_device(job.local_rank % devices);
  return device::cuda_table<NcclBackends>()->make(job, store, rank, size);
}

}  // namespace deepspeed::comm
