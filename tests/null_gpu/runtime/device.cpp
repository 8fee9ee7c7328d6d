// Devices, contexts and errors. All devices are H100s; NULL_GPU_DEVICES says how many there are.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/null_gpu/runtime/counts.h"
#include "tests/null_gpu/runtime/hooks.h"
#include "tests/null_gpu/runtime/streams.h"

namespace null_gpu {
namespace {

thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct Contexts {
  std::mutex mutex;
  std::set<int> devices;
};

Contexts& contexts() {
  static auto* const made = new Contexts;
  return *made;
}

int num_devices() {
  const char* const asked = std::getenv("NULL_GPU_DEVICES");
  return asked != nullptr ? std::atoi(asked) : 1;
}

const std::map<cudaDeviceAttr, int> kAttributes = {
    {cudaDevAttrMultiProcessorCount, 132},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
    {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
};

int driver_call(...) { return 0; }
int context_state(int index, unsigned* flags, int* is_active) {
  if (flags != nullptr) *flags = 0;
  *is_active = null_gpu_has_context(index);
  return 0;
}

int current_context(void** context) {
  *context = reinterpret_cast<void*>(0x10);
  return 0;
}

// Functions of the driver that torch asks for by name, and relies on.
const std::map<std::string, void*> kDriverFunctions = {
    {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&context_state)},
    {"cuCtxGetCurrent", reinterpret_cast<void*>(&current_context)},
};

}  // namespace

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

int current_device() { return device; }

void use_device() {
  const std::lock_guard lock(contexts().mutex);
  contexts().devices.insert(device);
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

int null_gpu_has_context(int index) {
  const std::lock_guard lock(contexts().mutex);
  return int(contexts().devices.count(index));
}

cudaError_t cudaGetDeviceCount(int* number) {
  *number = num_devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= num_devices()) return note(cudaErrorInvalidDevice);
  device = index;
  use_device();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  count("host waits: cudaDeviceSynchronize");
  if (const auto error = refuse_beside_capture()) return error;
  use_device();
  synchronize(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int index) {
  std::snprintf(text, size_t(size), "0000:%02x:00.0", unsigned(index));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(0x10);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "NVIDIA H100 (null %d)", index);
  properties->totalGlobalMem = size_t{79} << 30;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 232448;
  properties->sharedMemPerMultiprocessor = 233472;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->totalConstMem = 65536;
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = 50 << 20;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->unifiedAddressing = properties->concurrentKernels = properties->canMapHostMemory = 1;
  properties->asyncEngineCount = 3;
  properties->streamPrioritiesSupported = 1;
  properties->memoryBusWidth = 5120;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const auto found = kAttributes.find(attribute);
  *value = found == kAttributes.end() ? 1 : found->second;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  thread_local char name[32];
  std::snprintf(name, sizeof name, "cudaError%d", int(error));
  return name;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    default:
      return "an error of the null GPU";
  }
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const auto found = kDriverFunctions.find(name);
  *function = found != kDriverFunctions.end() ? found->second : reinterpret_cast<void*>(&driver_call);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}
