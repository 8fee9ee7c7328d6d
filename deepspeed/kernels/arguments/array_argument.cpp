#include "deepspeed/kernels/arguments/array_argument.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::kernels {

void check_array(const char* name, const at::Tensor& tensor, std::initializer_list<at::ScalarType> dtypes,
                 const std::source_location& where) {
  if (!tensor.defined()) {
    raise_at<UsageError>(where, name, " is undefined, expected a tensor");
  }
  if (std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) == dtypes.end()) {
    std::string expected;
    for (const at::ScalarType dtype : dtypes) {
      expected += message(expected.empty() ? "" : " or ", dtype);
    }
    raise_at<UsageError>(where, name, " has dtype ", tensor.scalar_type(), ", expected ", expected);
  }
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    raise_at<UsageError>(where, name, " of shape ", tensor.sizes(),
                         " is not dense and contiguous; pass its contiguous()");
  }
}

void check_fits(const char* name, const at::Tensor& tensor, int64_t numel, const at::Device& device,
                const std::source_location& where) {
  if (tensor.numel() != numel) {
    raise_at<UsageError>(where, name, " has ", tensor.numel(), " elements, expected ", numel);
  }
  if (tensor.device() != device) {
    raise_at<UsageError>(where, name, " lies on ", tensor.device(), ", expected ", device);
  }
}

void check_gradient_scale(const at::Tensor& scale, const at::Device& device,
                          const std::source_location& where) {
  if (!scale.defined()) return;
  check_array("gradient_scale", scale, {at::kDouble}, where);
  check_fits("gradient_scale", scale, 1, device, where);
}

ElementType element_type(at::ScalarType dtype, const std::source_location& where) {
  switch (dtype) {
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kDouble:
      return ElementType::kFloat64;
    default:
      raise_at<UsageError>(where, "dtype ", dtype, ", expected Float, Half, BFloat16 or Double");
  }
}

}  // namespace deepspeed::kernels
