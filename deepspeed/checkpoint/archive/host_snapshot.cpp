#include "deepspeed/checkpoint/archive/host_snapshot.h"

#include <algorithm>
#include <cstring>

#include <c10/core/GradMode.h>

#include "deepspeed/base/integers.h"
#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint64_t kSnapshotAlignment = 64;

/// Returns how many bytes of the snapshot one record takes, with padding.
uint64_t snapshot_bytes(const at::Tensor& record) { return round_up(record.nbytes(), kSnapshotAlignment); }

/// Fills the copy of a deferred record with data from the content's stream.
void fill(const at::Tensor& copy, const ArchiveContent& content, const at::Tensor& record) {
  auto* to = static_cast<char*>(copy.mutable_data_ptr());
  content.stream(record, [&](const void* data, size_t size) {
    std::memcpy(to, data, size);
    to += size;
  });
}

uint64_t snapshot_bytes(const std::vector<ArchiveContent>& contents) {
  uint64_t bytes = 0;
  for (const ArchiveContent& content : contents) {
    for (const at::Tensor& record : content.records) bytes += snapshot_bytes(record);
  }
  return bytes;
}

}  // namespace

uint64_t HostSnapshot::missing_bytes(const std::vector<ArchiveContent>& contents) const {
  const uint64_t held = memory_.defined() ? memory_.nbytes() : 0, needed = snapshot_bytes(contents);
  return needed > held ? needed : 0;
}

void HostSnapshot::take(std::vector<ArchiveContent>& contents) {
  const c10::NoGradGuard no_grad;
  c10::Device device = at::kCPU;
  for (const ArchiveContent& content : contents) {
    for (const at::Tensor& record : content.records) {
      if (!record.is_cpu() && !record.is_meta()) device = record.device();
    }
  }
  if (missing_bytes(contents) > 0) {
    memory_.reset();  // freed first, so that only one of them exists at a time
    memory_ = device::empty_host(int64_t(snapshot_bytes(contents)), at::kByte, !device.is_cpu());
  }
  int64_t offset = 0;
  for (ArchiveContent& content : contents) {
    for (at::Tensor& record : content.records) {
      const at::Tensor copy = memory_.narrow(0, offset, int64_t(record.nbytes())).view(record.scalar_type());
      if (record.is_meta()) {
        fill(copy, content, record);
      } else {
        copy.copy_(record, /*non_blocking=*/true);
      }
      offset += int64_t(snapshot_bytes(record));
      record = copy;
    }
  }
  copied_ = device::StreamEvent(device);
}

}  // namespace deepspeed::checkpoint
