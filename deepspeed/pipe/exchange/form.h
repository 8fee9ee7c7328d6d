// The form of a list of tensors: what a stage must know to receive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/pipe/module/layer.h"

namespace deepspeed::pipe {

struct TensorForm {
  bool is_defined = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  bool requires_grad = false;  // its gradient is sent back

  bool operator==(const TensorForm&) const = default;
  int64_t numel() const;
};

using Form = std::vector<TensorForm>;

Form form_of(const Tensors& values);
/// Returns the form of the gradients of values with this form. It is undefined at values that require no
/// gradient.
Form form_of_gradients(const Form& values);
/// Describes a form for messages: "[2, 8] Float, [2] Long".
std::string describe(const Form& form);

/// Encodes a form as numbers, (n) int64, for decode() on another rank.
at::Tensor encode(const Form& form);
Form decode(const at::Tensor& numbers);

/// Returns new tensors of the form with undefined values. They require no gradient yet.
Tensors make_tensors(const Form& form, at::Device device);
/// Returns detached values. They require gradients as `form` says.
Tensors as_leaves(const Tensors& values, const Form& form);

}  // namespace deepspeed::pipe
