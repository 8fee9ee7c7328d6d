// Operators that torch has for CUDA alone, made of others of the device, with the checks of torch's kernels.
#include <optional>
#include <tuple>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace deepspeed::simulated {
namespace {

/// Adds products of 16 bits to fp32.
at::Tensor& addmm_wide(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                       const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 and mat2 must have the same dtype");
  TORCH_CHECK(out.scalar_type() == type, "out_dtype must be the dtype of the provided out tensor");
  TORCH_CHECK(self.scalar_type() == type || self.scalar_type() == a.scalar_type(),
              "self dtype must match either out_dtype or mat1 dtype");
  TORCH_CHECK(type == a.scalar_type() || (type == at::kFloat && a.element_size() == 2),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::addmm_out(out, self.to(type), a.to(type), b.to(type), beta, alpha);
}

/// Gives gradients of heads [batch, sequence, heads, d] that share their memory.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, const at::Tensor& output, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, c10::SymInt most_queries, c10::SymInt most_keys, const at::Tensor& sums,
    double ratio, const at::Tensor& seed, const at::Tensor& offset, int64_t mask, bool wants_bias,
    std::optional<double> scale, std::optional<int64_t>, std::optional<int64_t>, bool shares) {
  TORCH_CHECK(shares && mask == 0 && !wants_bias, "the simulated device has no other call");
  TORCH_CHECK(most_queries == query.size(1) && most_keys == key.size(1) && query.sizes() == key.sizes(),
              "heads of one shape are expected");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto [of_queries, of_keys, of_values, of_bias] = at::_scaled_dot_product_efficient_attention_backward(
      gradient.transpose(1, 2), query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
      bias.value_or(at::Tensor()), output.transpose(1, 2), sums, seed, offset, ratio,
      {true, true, true, false}, false, scale);
  const at::Tensor all =
      at::empty({query.size(0), query.size(1), 3, query.size(2), query.size(3)}, query.options());
  all.select(2, 0).copy_(of_queries.transpose(1, 2));
  all.select(2, 1).copy_(of_keys.transpose(1, 2));
  all.select(2, 2).copy_(of_values.transpose(1, 2));
  return {all.select(2, 0), all.select(2, 1), all.select(2, 2), at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("addmm.dtype_out", &addmm_wide);
  library.impl("_efficient_attention_backward", &efficient_backward);
}

}  // namespace
}  // namespace deepspeed::simulated
