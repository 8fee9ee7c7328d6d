#include "deepspeed/zero/params/trained_dtype.h"

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

void check_trained_dtype(const NamedTensor& param, at::ScalarType model, const std::source_location& where) {
  const at::Tensor& tensor = param.tensor;
  if (tensor.is_complex()) {
    raise_at<UsageError>(
        where, "parameter '", param.name, "' is ", tensor.scalar_type(),
        ", expected a float tensor: register torch::view_as_real(values) as the parameter and use "
        "torch::view_as_complex() of it in forward()");
  }
  if (tensor.layout() != at::kStrided || !tensor.is_floating_point()) {
    raise_at<UsageError>(where, "parameter '", param.name, "' is ", tensor.toString(),
                         ", expected a dense float tensor");
  }
  const bool fits =
      model != at::kFloat || tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  if (fits) return;
  raise_at<UsageError>(where, "parameter '", param.name, "' is ", tensor.scalar_type(),
                       ", expected Float or Double: convert the model, or enable fp16 or bf16 in the config");
}

at::ScalarType trained_dtype_of_group(const std::vector<NamedTensor>& params, at::ScalarType model,
                                      const std::source_location& where) {
  const NamedTensor& first = params.front();
  const at::ScalarType dtype = trained_dtype(first.tensor, model);
  for (const NamedTensor& param : params) {
    if (trained_dtype(param.tensor, model) == dtype) continue;
    raise_at<UsageError>(where, "parameter '", param.name, "' is ", param.tensor.scalar_type(), ", '",
                         first.name, "' of the same group ", first.tensor.scalar_type(),
                         "; give each type a group of its own");
  }
  return dtype;
}

}  // namespace deepspeed::zero
