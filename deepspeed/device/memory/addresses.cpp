#include "deepspeed/device/memory/addresses.h"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace deepspeed::device {
namespace {

constexpr size_t kLeastAddresses = size_t{1} << 30;
constexpr int kMereAddresses = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uintptr_t round_up_to(uintptr_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Addresses reserve_addresses(size_t bytes, size_t alignment) {
  bytes = round_up_to(bytes, alignment);
  while (true) {
    void* const data = ::mmap(nullptr, bytes + alignment, PROT_NONE, kMereAddresses, -1, 0);
    if (data != MAP_FAILED) {
      const auto begin = reinterpret_cast<uintptr_t>(data);
      const size_t before = round_up_to(begin, alignment) - begin;
      char* const aligned = static_cast<char*>(data) + before;
      if (before > 0) ::munmap(data, before);
      if (before < alignment) ::munmap(aligned + bytes, alignment - before);
      return {aligned, bytes};
    }
    if (bytes <= kLeastAddresses) return {};
    bytes = round_up_to(bytes / 2, alignment);
  }
}

void release_addresses(const Addresses& addresses) {
  if (addresses.data != nullptr) ::munmap(addresses.data, addresses.bytes);
}

bool make_mere_addresses(char* data, size_t bytes) {
  return ::mmap(data, bytes, PROT_NONE, kMereAddresses | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace deepspeed::device
