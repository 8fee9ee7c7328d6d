#include "deepspeed/zero/access/gather_buffers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/comm/making/buffer.h"

namespace deepspeed::zero {
namespace {

bool is_unused(const at::Tensor& buffer) { return buffer.use_count() == 1; }

int64_t buffer_bytes(const at::Tensor& buffer) { return static_cast<int64_t>(buffer.nbytes()); }

}  // namespace

at::Tensor GatherBuffers::take(int64_t numel, const at::TensorOptions& options) {
  constexpr int64_t kLeastBytes = 256 << 10;
  const int64_t wanted = numel * static_cast<int64_t>(options.dtype().itemsize());
  // On a device torch itself keeps freed memory.
  if (wanted < kLeastBytes || !options.device().is_cpu()) return at::empty({numel}, options);
  const auto fits = [&](const at::Tensor& buffer) {
    return is_unused(buffer) && buffer.numel() == numel && buffer.dtype() == options.dtype();
  };
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), fits);
  if (found != buffers_.end()) {
    std::rotate(found, std::next(found), buffers_.end());
    return buffers_.back();
  }
  int64_t used = wanted, unused = 0;
  for (const at::Tensor& buffer : buffers_) (is_unused(buffer) ? unused : used) += buffer_bytes(buffer);
  std::erase_if(buffers_, [&](const at::Tensor& buffer) {
    if (unused <= used || !is_unused(buffer)) return false;
    unused -= buffer_bytes(buffer);
    return true;
  });
  return buffers_.emplace_back(comm::buffer(numel, options));
}

void GatherBuffers::drop_unused() { std::erase_if(buffers_, &is_unused); }

}  // namespace deepspeed::zero
