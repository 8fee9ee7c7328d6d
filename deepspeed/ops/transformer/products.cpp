#include "deepspeed/ops/transformer/products.h"

#include <ATen/Version.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

namespace deepspeed::ops {
namespace {

bool cpu_multiplies(at::ScalarType dtype) {
#if defined(__x86_64__)
  // What oneDNN asks for; without it torch multiplies element by element.
  if (dtype == at::kBFloat16) return at::get_cpu_capability() == "AVX512";
  if (dtype == at::kHalf) return __builtin_cpu_supports("avx512fp16") != 0;
#endif
  return dtype != at::kHalf && dtype != at::kBFloat16;
}

}  // namespace

at::ScalarType product_type(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && !cpu_multiplies(dtype) ? at::kFloat : dtype;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType type = product_type(a);
  const at::Tensor left = a.to(type), right = b.to(type);
  return (a.dim() == 2 ? at::mm(left, right) : at::bmm(left, right)).to(a.scalar_type());
}

void product_out(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType type = product_type(a);
  if (type != a.scalar_type()) {
    result.copy_(at::bmm(a.to(type), b.to(type)));
    return;
  }
  at::Tensor out = result;
  at::bmm_out(out, a, b);
}

at::Tensor add_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType type = product_type(a);
  return at::addmm(c.to(type), a.to(type), b.to(type)).to(a.scalar_type());
}

}  // namespace deepspeed::ops
