#include "deepspeed/device/accelerator/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <sys/resource.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::device {
namespace {

// Reads a number from a file in /proc with lines such as "VmHWM:     12345 kB".
int64_t bytes_of_line(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  raise<IoError>(path, " has no line ", key, "; is /proc mounted?");
}

int64_t status_bytes(const std::string& key) { return bytes_of_line("/proc/self/status", key); }

// Reads a limit; nothing if the file is missing or holds no limit ("max").
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t number = 0;
  if (!(file >> text) || std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

// Returns how much more of a resource the process may take; nothing if it has no limit. `used` is the line of
// /proc with its current use.
std::optional<int64_t> left_of(int resource, const char* used) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - status_bytes(used));
}

/// Returns the allocator of CUDA devices. It is null without a device, and before the first tensor.
c10::DeviceAllocator* cuda_allocator() {
  if (num_cuda_devices() == 0) return nullptr;
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(at::kCUDA);
  return allocator->initialized() ? allocator : nullptr;
}

constexpr auto kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Returns the statistics of tensor memory on the current CUDA device.
c10::CachingAllocator::Stat cuda_bytes() {
  c10::DeviceAllocator* const allocator = cuda_allocator();
  if (allocator == nullptr) return {};
  const auto index = static_cast<c10::DeviceIndex>(current_cuda_device());
  return allocator->getDeviceStats(index).allocated_bytes[kAllPools];
}

/// Returns the bytes for tensors in total; 0 if unknown. It is the driver's free memory plus what the
/// allocator holds.
int64_t bytes_for_tensors(c10::DeviceAllocator& allocator, c10::DeviceIndex device) {
  try {
    const size_t left = allocator.getMemoryInfo(device).first;
    return static_cast<int64_t>(left) + allocator.getDeviceStats(device).reserved_bytes[kAllPools].current;
  } catch (const c10::NotImplementedError&) {
    return 0;
  }
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

int64_t available_host_bytes() {
  int64_t available = bytes_of_line("/proc/meminfo", "MemAvailable");
  const std::string groups = "/sys/fs/cgroup/";  // version 2, then version 1
  for (const auto& [most, used] :
       {std::pair("memory.max", "memory.current"),
        std::pair("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")}) {
    const auto limit = number_in(groups + most), now = number_in(groups + used);
    if (limit && now) available = std::min(available, std::max<int64_t>(0, *limit - *now));
  }
  for (const auto& left : {left_of(RLIMIT_DATA, "VmData"), left_of(RLIMIT_AS, "VmSize")}) {
    if (left) available = std::min(available, *left);
  }
  return available;
}

int64_t cuda_allocated_bytes() { return cuda_bytes().current; }
int64_t cuda_peak_allocated_bytes() { return cuda_bytes().peak; }

int64_t cuda_available_bytes(int device) {
  static std::mutex mutex;
  static std::map<int, int64_t> in_all;
  c10::DeviceAllocator* const allocator = cuda_allocator();
  if (allocator == nullptr) return 0;
  const auto index = static_cast<c10::DeviceIndex>(device);
  const std::lock_guard lock(mutex);
  auto found = in_all.find(device);
  if (found == in_all.end()) found = in_all.emplace(device, bytes_for_tensors(*allocator, index)).first;
  const int64_t taken = allocator->getDeviceStats(index).allocated_bytes[kAllPools].current;
  return std::max<int64_t>(0, found->second - taken);
}

}  // namespace deepspeed::device
