#include "deepspeed/ops/transformer/products.h"

#include <optional>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

namespace deepspeed::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Scalars = c10::List<std::optional<at::Scalar>>;

constexpr int64_t kOneDnnNumel = int64_t{1} << 20;  // oneDNN pays from this many multiplications

bool cpu_multiplies(at::ScalarType dtype) {
#if defined(__x86_64__)
  // oneDNN needs these; without them torch multiplies element by element.
  if (dtype == at::kBFloat16) return at::get_cpu_capability() == "AVX512";
  if (dtype == at::kHalf) return __builtin_cpu_supports("avx512fp16") != 0;
#endif
  return dtype != at::kHalf && dtype != at::kBFloat16;
}

/// Returns whether oneDNN multiplies float32 faster on this machine than MKL, which torch uses.
///
/// MKL's best kernels run only on Intel processors. On AMD processors with AVX-512 oneDNN is 1.1 to 1.5 times
/// as fast.
bool prefers_onednn() {
#if defined(__x86_64__)
  static const bool prefers = at::get_cpu_capability() == "AVX512" && __builtin_cpu_is("intel") == 0;
  return prefers && at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

/// Holds the linear operators of oneDNN that torch registers for its compiler.
///
/// `plain` computes x w^T + bias. `adding` adds another tensor to that.
struct OneDnnLinear {
  using Plain = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, std::string_view,
                           Scalars, std::optional<std::string_view>);
  using Adding = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                            std::string_view);
  c10::TypedOperatorHandle<Plain> plain;
  c10::TypedOperatorHandle<Adding> adding;
};

/// Returns torch's oneDNN operators, or null if this torch does not have them.
const OneDnnLinear* onednn_linear() {
  static const std::optional<OneDnnLinear> found = []() -> std::optional<OneDnnLinear> {
    const auto plain = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    const auto adding = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", "binary"});
    if (!plain || !adding) return std::nullopt;
    return OneDnnLinear{plain->typed<OneDnnLinear::Plain>(), adding->typed<OneDnnLinear::Adding>()};
  }();
  return found ? &*found : nullptr;
}

bool lies_densely(const at::Tensor& matrix) { return matrix.is_contiguous() || matrix.t().is_contiguous(); }

/// Returns the oneDNN operators if they suit the product a b, otherwise null.
const OneDnnLinear* onednn_for(const at::Tensor& a, const at::Tensor& b) {
  const bool suits = a.dim() == 2 && a.is_cpu() && a.scalar_type() == at::kFloat && a.is_contiguous() &&
                     b.scalar_type() == at::kFloat && lies_densely(b) &&
                     a.numel() * b.size(1) >= kOneDnnNumel && prefers_onednn();
  return suits ? onednn_linear() : nullptr;
}

at::Tensor plain_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 3) return at::bmm(a, b);
  if (const OneDnnLinear* const linear = onednn_for(a, b))
    return linear->plain.call(a, b.t(), std::nullopt, "none", Scalars(), "");
  return at::mm(a, b);
}

at::Tensor added_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  const OneDnnLinear* const linear = c.is_contiguous() ? onednn_for(a, b) : nullptr;
  if (linear == nullptr) return at::addmm(c, a, b);
  if (c.dim() == 1) return linear->plain.call(a, b.t(), c, "none", Scalars(), "");
  return linear->adding.call(a, c, b.t(), std::nullopt, "add");
}

}  // namespace

at::ScalarType product_type(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && !cpu_multiplies(dtype) ? at::kFloat : dtype;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType type = product_type(a);
  return plain_product(a.to(type), b.to(type)).to(a.scalar_type());
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
  return added_product(c.to(type), a.to(type), b.to(type)).to(a.scalar_type());
}

}  // namespace deepspeed::ops
