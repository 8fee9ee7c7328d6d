// Kernels: their names, and launches, which are counted, held against the device's limits, and do nothing,
// but for those of torch that fill: sums begin with zeros, and a sum of which one rank saw other remains of
// memory than the next, a norm say, would send the ranks different ways.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "tests/null_gpu/runtime/counts.h"
#include "tests/null_gpu/runtime/streams.h"

namespace null_gpu {
namespace {

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, std::string> names;  // by the function of the host
};

Kernels& kernels() {
  static auto* const made = new Kernels;
  return *made;
}

std::string name_of(const void* function) {
  const std::lock_guard lock(kernels().mutex);
  const auto found = kernels().names.find(function);
  return found == kernels().names.end() ? "unknown" : found->second;
}

bool is_allowed(const dim3& grid, const dim3& block) {
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU && grid.y <= 65535 &&
         grid.z <= 65535 && threads > 0 && threads <= 1024 && block.z <= 64;
}

// The kernel of torch's sleep(), whose argument is a number of cycles, takes its time.
bool sleeps(const std::string& name) { return name.find("spin_kernel") != std::string::npos; }

/// Returns the bytes of a number that a kernel of torch's fill() writes; 0 for other kernels.
size_t filled_width(const std::string& name) {
  static const std::map<std::string, size_t> widths = {
      {"d", 8}, {"l", 8}, {"f", 4}, {"i", 4},          {"s", 2},
      {"h", 1}, {"a", 1}, {"b", 1}, {"N3c104Half", 2}, {"N3c108BFloat16", 2}};
  constexpr std::string_view kFunctor = "11FillFunctorI";
  const size_t place = name.find(kFunctor);
  const bool is_plain = name.find("vectorized_elementwise_kernel") != std::string::npos ||
                        name.find("unrolled_elementwise_kernel") != std::string::npos;
  if (place == std::string::npos || !is_plain) return 0;
  const std::string_view type = std::string_view(name).substr(place + kFunctor.size());
  for (const auto& [code, width] : widths)
    if (type.substr(0, code.size() + 1) == code + "E") return width;
  return 0;
}

/// Fills as torch's kernel does, whose arguments are a count, the value and the place.
Work filling(void** arguments, size_t width) {
  const auto count = size_t(*static_cast<const int*>(arguments[0]));
  const auto* const value = static_cast<const char*>(arguments[1]);
  char* const place = *static_cast<char* const*>(arguments[2]);
  return [=, value = std::string(value, width)] {
    for (size_t i = 0; i < count; ++i) std::memcpy(place + i * width, value.data(), width);
  };
}

cudaError_t launch(const void* function, const dim3& grid, const dim3& block, void** arguments,
                   size_t shared_bytes, cudaStream_t stream) {
  use_device();
  const std::string name = name_of(function);
  if (!is_allowed(grid, block) || shared_bytes > 227 * 1024) {
    std::fprintf(stderr, "[null gpu] launch of %s: grid (%u, %u, %u), block (%u, %u, %u), %zu bytes shared\n",
                 name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    return note(cudaErrorInvalidConfiguration);
  }
  count(name.find("9deepspeed") != std::string::npos ? "launches: own" : "launches: torch");
  count("kernel " + name);
  if (const size_t width = filled_width(name); width > 0)
    return stream_of(stream).give(filling(arguments, width));
  if (!sleeps(name)) return stream_of(stream).give([] {});
  const auto nanoseconds = std::chrono::nanoseconds(*static_cast<const int64_t*>(arguments[0]));
  return stream_of(stream).give([=] { std::this_thread::sleep_for(nanoseconds); }, /*may_block=*/true);
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
};
thread_local Configuration pushed;

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  const std::lock_guard lock(kernels().mutex);
  kernels().names.emplace(function, name);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  pushed = {grid, block, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared_bytes = pushed.shared_bytes;
  *static_cast<void**>(stream) = pushed.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return launch(function, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return launch(function, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                config->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                   unsigned) {
  *blocks = 8;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 8;
  return cudaSuccess;
}
}
