// A 16-bit tensor as fp32, for a kernel that computes in it.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace deepspeed::optim {

class WideCopy {
 public:
  /// An fp32 or fp64 tensor that is contiguous stands for itself.
  explicit WideCopy(at::Tensor narrow)
      : narrow_(std::move(narrow)),
        wide_(narrow_.to(narrow_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous()) {}

  const at::Tensor& wide() const { return wide_; }
  /// What was written, rounded to nearest, into the tensor itself.
  void store() const {
    if (!wide_.is_same(narrow_)) narrow_.copy_(wide_);
  }

 private:
  at::Tensor narrow_;
  at::Tensor wide_;
};

}  // namespace deepspeed::optim
