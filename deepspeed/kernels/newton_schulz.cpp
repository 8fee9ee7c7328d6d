#include "deepspeed/kernels/newton_schulz.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "deepspeed/base/error.h"

namespace deepspeed::kernels {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kSteps = 5;
constexpr int kRestart = 2;  // here the gram iteration recomputes X, because rounding errors of X X' grow

// Returns beta * added + left right.
at::Tensor product_plus(const at::Tensor& added, double beta, const at::Tensor& left, const at::Tensor& right,
                        double alpha = 1.0) {
  return at::baddbmm(added, left, right, beta, alpha);
}

// Returns b R + c R^2.
at::Tensor quadratic(const at::Tensor& r) { return product_plus(r, kB, r, r, kC); }

// Iterates on X itself, which is (batch, n, m) with n <= m.
at::Tensor iterate(at::Tensor x) {
  for (int i = 0; i < kSteps; ++i) {
    x = product_plus(x, kA, quadratic(at::bmm(x, x.mT())), x);
  }
  return x;
}

// Let Z = b R + c R^2, with R = X X'. A step is X <- (a + Z) X. Since R commutes with Z, also R <- (a + Z) R
// (a + Z).
at::Tensor iterate_gram(at::Tensor x) {
  at::Tensor r = at::bmm(x, x.mT());
  at::Tensor q;  // the product of all factors so far, to multiply x by
  for (int i = 0; i < kSteps; ++i) {
    if (i == kRestart) {
      x = at::bmm(q, x);
      r = at::bmm(x, x.mT());
      q.reset();
    }
    const at::Tensor z = quadratic(r);
    if (q.defined()) {
      q = product_plus(q, kA, z, q);
    } else {
      q = z.clone();
      q.diagonal(0, -2, -1).add_(kA);
    }
    if (i + 1 != kRestart && i + 1 != kSteps) {
      const at::Tensor half = product_plus(r, kA, z, r);
      r = product_plus(half, kA, z, half);
    }
  }
  return at::bmm(q, x);
}

at::ScalarType compute_dtype(const at::Device& device, NewtonSchulzMethod method) {
  if (!device.is_cuda()) {
    return at::kFloat;
  }
  return method == NewtonSchulzMethod::kGram ? at::kHalf : at::kBFloat16;
}

}  // namespace

NewtonSchulzMethod newton_schulz_method(const std::string& name, const std::source_location& where) {
  if (name != "standard" && name != "gram") {
    raise_at<UsageError>(where, "ns_method is '", name, "', expected \"gram\" or \"standard\"");
  }
  return name == "gram" ? NewtonSchulzMethod::kGram : NewtonSchulzMethod::kStandard;
}

at::Tensor orthogonalize(const at::Tensor& matrices, NewtonSchulzMethod method) {
  if (matrices.dim() < 2) {
    raise<UsageError>("a tensor of shape ", matrices.sizes(),
                      " is no matrix, expected at least 2 dimensions");
  }
  const int64_t rows = matrices.size(-2), cols = matrices.size(-1);
  if (matrices.numel() == 0) {
    return matrices.clone();
  }
  at::Tensor x = matrices.reshape({-1, rows, cols});
  const at::Tensor norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{-2, -1}, /*keepdim=*/true);
  x = x.div(norm.add(1e-7)).to(compute_dtype(matrices.device(), method));
  const bool tall = rows > cols;
  x = tall ? x.mT() : x;
  x = method == NewtonSchulzMethod::kGram && rows != cols ? iterate_gram(x) : iterate(x);
  x = tall ? x.mT() : x;
  return x.to(at::kFloat).reshape(matrices.sizes());
}

}  // namespace deepspeed::kernels
