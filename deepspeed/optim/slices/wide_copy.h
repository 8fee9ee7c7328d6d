// A wide copy is an fp32 copy of a 16-bit tensor, for kernels that compute in fp32.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

class WideCopy {
 public:
  /// Widens `narrow` to fp32; a contiguous fp32 or fp64 tensor is used directly.
  explicit WideCopy(at::Tensor narrow)
      : narrow_(std::move(narrow)),
        wide_(narrow_.to(narrow_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous()) {}

  const at::Tensor& wide() const { return wide_; }
  /// Writes the wide values back into the tensor, rounded to nearest.
  void store() const {
    if (!wide_.is_same(narrow_)) narrow_.copy_(wide_);
  }

 private:
  at::Tensor narrow_;
  at::Tensor wide_;
};

}  // namespace deepspeed::optim
