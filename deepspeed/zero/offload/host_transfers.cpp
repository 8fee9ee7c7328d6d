#include "deepspeed/zero/offload/host_transfers.h"

#include <utility>

#include <c10/core/ScalarTypeToTypeMeta.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {
namespace {

constexpr size_t kAhead = 2;  // this many copies run ahead of next()

}  // namespace

HostTransfers::HostTransfers(at::Device device, bool pin_memory, bool always_copies)
    : pin_memory_(pin_memory), always_copies_(always_copies), in_(device), out_(device) {}

at::Tensor HostTransfers::memory_of(Buffer& buffer, int64_t numel, at::ScalarType dtype) const {
  const int64_t bytes = numel * int64_t(c10::elementSize(dtype));
  if (!buffer.memory.defined() || buffer.memory.numel() < bytes)
    buffer.memory = device::empty_host(bytes, at::kByte, pin_memory_);
  return buffer.memory.narrow(0, 0, bytes).view(dtype);
}

void HostTransfers::expect(std::vector<at::Tensor> sources, bool sends_back) {
  incoming_.resize(sends_back ? 3 * kAhead : 2 * kAhead);
  sources_ = std::move(sources);
  arriving_.clear();
  num_taken_ = 0;
  for (size_t ahead = 0; ahead < kAhead; ++ahead) start_next();
}

void HostTransfers::start_next() {
  const size_t index = arriving_.size();
  if (index >= sources_.size()) return;
  const at::Tensor& source = sources_[index];
  if (!is_far(source)) return arriving_.push_back(source);
  Buffer& buffer = incoming_[index % incoming_.size()];
  buffer.copied.wait();  // it may have been sent back
  const at::Tensor host = memory_of(buffer, source.numel(), source.scalar_type());
  buffer.copied = in_.copy(host, source);
  arriving_.push_back(host);
}

at::Tensor HostTransfers::next() {
  if (num_taken_ >= sources_.size())
    raise<UsageError>("nothing more is expected; announce tensors with expect() first");
  const size_t index = num_taken_++;
  incoming_[index % incoming_.size()].copied.wait();
  const at::Tensor result = arriving_[index];
  start_next();
  return result;
}

void HostTransfers::send_back(const at::Tensor& to) {
  const size_t index = num_taken_ - 1;
  incoming_[index % incoming_.size()].copied = out_.copy(to, arriving_[index]);
}

at::Tensor HostTransfers::outgoing(int64_t numel, at::ScalarType dtype) {
  Buffer& buffer = outgoing_[++num_sent_ % outgoing_.size()];
  buffer.copied.wait();
  return memory_of(buffer, numel, dtype);
}

void HostTransfers::send(const at::Tensor& to, const at::Tensor& from) {
  outgoing_[num_sent_ % outgoing_.size()].copied = out_.copy(to, from);
}

void HostTransfers::finish() {
  for (const Buffer& buffer : incoming_) buffer.copied.hold_current_stream();
  for (const Buffer& buffer : outgoing_) buffer.copied.hold_current_stream();
  sources_.clear();
  arriving_.clear();
}

}  // namespace deepspeed::zero
