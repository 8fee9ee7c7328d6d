#include "deepspeed/zero/gradients/buckets/copy_batch.h"

#include <ATen/ops/_foreach_copy.h>

namespace deepspeed::zero {
namespace {

constexpr int64_t kMostBytes = int64_t{32} << 20;
constexpr int64_t kLargeBytes = int64_t{16} << 20;  // so large a copy is worth its own launch

/// Returns whether torch can make this copy in one kernel launch with others.
bool can_share_launch(const at::Tensor& destination, const at::Tensor& gradient) {
  return destination.is_cuda() && gradient.device() == destination.device() &&
         gradient.scalar_type() == destination.scalar_type() && gradient.is_contiguous() &&
         destination.is_contiguous() && static_cast<int64_t>(gradient.nbytes()) < kLargeBytes;
}

}  // namespace

void CopyBatch::copy(const at::Tensor& destination, const at::Tensor& gradient) {
  if (!can_share_launch(destination, gradient)) {
    destination.copy_(gradient);
    return;
  }
  const auto bytes = static_cast<int64_t>(gradient.nbytes());
  const bool has_other_dtype =
      !gradients_.empty() && gradients_.front().scalar_type() != gradient.scalar_type();
  if (has_other_dtype || bytes_ + bytes > kMostBytes) flush();
  destinations_.push_back(destination);
  gradients_.push_back(gradient.detach());  // autograd may give the tensor other memory
  bytes_ += bytes;
}

void CopyBatch::flush() {
  if (!gradients_.empty()) at::_foreach_copy_(destinations_, gradients_);
  drop();
}

void CopyBatch::drop() {
  destinations_.clear();
  gradients_.clear();
  bytes_ = 0;
}

}  // namespace deepspeed::zero
