// Memory of the device and page-locked memory: the host's, whose addresses tell which it is.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/null_gpu/runtime/counts.h"
#include "tests/null_gpu/runtime/streams.h"

namespace null_gpu {
namespace {

struct Block {
  size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
  bool is_mapped = true;  // by this file
};

struct Memory {
  std::mutex mutex;
  std::map<const char*, Block> blocks;
  std::map<int, size_t> used;  // bytes by device
};

Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

// NULL_GPU_MEMORY in GiB; that of an H100 without.
size_t capacity() {
  const char* const asked = std::getenv("NULL_GPU_MEMORY");
  return size_t(asked != nullptr ? std::atoi(asked) : 79) << 30;
}

size_t in_pages(size_t bytes) { return std::max<size_t>(bytes, 1); }

cudaError_t allocate(void** place, size_t bytes, cudaMemoryType type) {
  *place = nullptr;
  if (const auto error = refuse_beside_capture()) return error;
  use_device();
  const std::lock_guard lock(memory().mutex);
  size_t& used = memory().used[current_device()];
  if (type == cudaMemoryTypeDevice && used + bytes > capacity()) return note(cudaErrorMemoryAllocation);
  void* const made = ::mmap(nullptr, in_pages(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return note(cudaErrorMemoryAllocation);
  if (type == cudaMemoryTypeDevice) used += bytes;
  memory().blocks[static_cast<char*>(made)] = {bytes, type, current_device()};
  *place = made;
  return cudaSuccess;
}

// CUDA waits for all work of the device first.
cudaError_t give_back(void* place) {
  if (place == nullptr) return cudaSuccess;
  if (const auto error = refuse_beside_capture()) return error;
  count("device waits: memory given back");
  synchronize(current_device());
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().blocks.find(static_cast<char*>(place));
  if (found == memory().blocks.end()) return note(cudaErrorInvalidValue);
  if (found->second.type == cudaMemoryTypeDevice) memory().used[found->second.device] -= found->second.bytes;
  if (found->second.is_mapped) ::munmap(place, in_pages(found->second.bytes));
  memory().blocks.erase(found);
  return cudaSuccess;
}

Block block_of(const void* address) {
  const std::lock_guard lock(memory().mutex);
  const auto* const place = static_cast<const char*>(address);
  auto found = memory().blocks.upper_bound(place);
  if (found != memory().blocks.begin()) {
    --found;
    if (place < found->first + found->second.bytes) return found->second;
  }
  return {0, cudaMemoryTypeUnregistered, -1};
}

const char* name_of(cudaMemoryType type) {
  switch (type) {
    case cudaMemoryTypeDevice:
      return "device";
    case cudaMemoryTypeHost:
      return "locked";
    default:
      return "pageable";
  }
}

/// Says whether all pages of a range have memory.
bool is_resident(void* place, size_t bytes) {
  const size_t page = size_t(::sysconf(_SC_PAGESIZE));
  auto* const first = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(place) / page * page);
  const size_t length = size_t(static_cast<char*>(place) + bytes - first);
  std::vector<unsigned char> pages((length + page - 1) / page);
  if (::mincore(first, length, pages.data()) != 0) return false;
  return std::ranges::all_of(pages, [](unsigned char state) { return (state & 1U) != 0; });
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaStream_t handle) {
  use_device();
  const auto type_to = block_of(to).type, type_from = block_of(from).type;
  count(std::string("copies: ") + name_of(type_from) + " to " + name_of(type_to));
  Stream& stream = stream_of(handle);
  if (type_to == cudaMemoryTypeUnregistered || type_from == cudaMemoryTypeUnregistered) {
    // The driver's own buffers are between, so that the host waits; a capture cannot hold it.
    const std::lock_guard lock(captures_mutex());
    if (stream.capture()) {
      stream.capture()->is_invalid = true;
      return note(cudaErrorStreamCaptureUnsupported);
    }
  }
  const auto error = stream.give([=] { std::memmove(to, from, bytes); });
  const bool is_pageable = type_to == cudaMemoryTypeUnregistered || type_from == cudaMemoryTypeUnregistered;
  if (error == cudaSuccess && is_pageable) stream.wait();
  return error;
}

cudaError_t copy_and_wait(void* to, const void* from, size_t bytes) {
  if (const auto error = refuse_beside_capture()) return error;
  count("host waits: cudaMemcpy");
  const auto error = copy(to, from, bytes, nullptr);
  stream_of(nullptr).wait();
  return error;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaMalloc(void** place, size_t bytes) {
  count("cudaMalloc");
  return allocate(place, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocAsync(void** place, size_t bytes, cudaStream_t) { return cudaMalloc(place, bytes); }
cudaError_t cudaFree(void* place) { return give_back(place); }
cudaError_t cudaFreeAsync(void* place, cudaStream_t) { return give_back(place); }
cudaError_t cudaHostAlloc(void** place, size_t bytes, unsigned) {
  count("cudaHostAlloc");
  return allocate(place, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaMallocHost(void** place, size_t bytes) { return cudaHostAlloc(place, bytes, 0); }
cudaError_t cudaFreeHost(void* place) { return give_back(place); }

cudaError_t cudaHostRegister(void* place, size_t bytes, unsigned) {
  count("cudaHostRegister");
  if (!is_resident(place, bytes)) count("cudaHostRegister of pages without memory");
  if (const auto error = refuse_beside_capture()) return error;
  use_device();
  if (block_of(place).type == cudaMemoryTypeHost) return note(cudaErrorHostMemoryAlreadyRegistered);
  const std::lock_guard lock(memory().mutex);
  memory().blocks[static_cast<char*>(place)] = {bytes, cudaMemoryTypeHost, current_device(), false};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* place) {
  if (block_of(place).type != cudaMemoryTypeHost) return note(cudaErrorHostMemoryNotRegistered);
  return give_back(place);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  use_device();
  const std::lock_guard lock(memory().mutex);
  *total = capacity();
  *free = *total - memory().used[current_device()];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* place) {
  const Block block = block_of(place);
  *attributes = {};
  attributes->type = block.type;
  attributes->device = block.device;
  if (block.type == cudaMemoryTypeDevice) attributes->devicePointer = const_cast<void*>(place);
  if (block.type == cudaMemoryTypeHost) {
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(place);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return copy_and_wait(to, from, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t pitch_to, const void* from, size_t pitch_from, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row) {
    const auto error = copy(static_cast<char*>(to) + row * pitch_to,
                            static_cast<const char*>(from) + row * pitch_from, width, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** place, const void*) {
  static char symbol[4096];
  *place = symbol;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* place, int value, size_t bytes, cudaStream_t stream) {
  count("memsets");
  use_device();
  return stream_of(stream).give([=] { std::memset(place, value, bytes); });
}
cudaError_t cudaMemset(void* place, int value, size_t bytes) {
  if (const auto error = refuse_beside_capture()) return error;
  return cudaMemsetAsync(place, value, bytes, nullptr);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
}
