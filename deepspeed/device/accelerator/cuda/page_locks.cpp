#include "deepspeed/device/accelerator/page_locks.h"

#include <cuda_runtime_api.h>

#include "deepspeed/base/export.h"

namespace deepspeed::device {
namespace {

const char* lock(void* data, size_t bytes) {
  const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // clears the error, which only we caused
  return cudaGetErrorString(error);
}

// Errors are ignored: at the end of the process the driver may be gone already.
void unlock(void* data) {
  cudaHostUnregister(data);
  cudaGetLastError();
}

}  // namespace

extern "C" {
DEEPSPEED_API extern const PageLocks deepspeed_cuda_page_locks;
const PageLocks deepspeed_cuda_page_locks{.lock = &lock, .unlock = &unlock};
}

}  // namespace deepspeed::device
