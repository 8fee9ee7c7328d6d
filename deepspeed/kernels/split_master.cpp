#include "deepspeed/kernels/split_master.h"

#include <algorithm>
#include <cstdint>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kHalfBits = 16, kHalfSpan = int64_t{1} << kHalfBits;
constexpr int64_t kAllButSign = 0x7fff;
constexpr int64_t kQuietNan = 0x7fc00000;

void check_halves(const at::Tensor& upper, const at::Tensor& lower) {
  check_array("upper", upper, {at::kBFloat16});
  check_array("lower", lower, {at::kShort});
  check_fits("lower", lower, upper.numel(), upper.device());
}

void check_master(const at::Tensor& master, const at::Tensor& upper) {
  check_array("master", master, {at::kFloat});
  check_fits("master", master, upper.numel(), upper.device());
}

/// Calls work(part) for each piece of the arrays; part(tensor) returns that piece of a tensor. Temporaries
/// then fit a CPU's caches and stay small on a GPU.
template <class Work>
void for_each_piece(const at::Tensor& upper, const Work& work) {
  const int64_t numel = upper.numel(), piece = upper.is_cpu() ? int64_t{1} << 17 : int64_t{1} << 24;
  for (int64_t begin = 0; begin < numel; begin += piece) {
    const int64_t count = std::min(piece, numel - begin);
    work([=](const at::Tensor& flat) { return flat.detach().view({-1}).narrow(0, begin, count); });
  }
}

}  // namespace

void join_master_into(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower) {
  check_halves(upper, lower);
  check_master(master, upper);
  for_each_piece(upper, [&](const auto& part) {
    const at::Tensor weight = part(upper).view(at::kShort), ahead = part(lower);
    const at::Tensor no_split = weight.bitwise_and(kAllButSign).eq(0).bitwise_and_(ahead.lt(0));
    const at::Tensor bits = part(master).view(at::kInt).copy_(weight);
    bits.mul_(kHalfSpan).add_(ahead.masked_fill(no_split, 0));
  });
}

at::Tensor join_master(const at::Tensor& upper, const at::Tensor& lower) {
  check_halves(upper, lower);
  at::Tensor master = at::empty({upper.numel()}, upper.options().dtype(at::kFloat).requires_grad(false));
  join_master_into(master, upper, lower);
  return master;
}

void split_master(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower) {
  check_halves(upper, lower);
  check_master(master, upper);
  for_each_piece(upper, [&](const auto& part) {
    const at::Tensor values = part(master);
    const at::Tensor bits = values.view(at::kInt).masked_fill(values.isnan(), kQuietNan);
    const at::Tensor to = part(lower);
    to.copy_(bits);  // keeps the lower 16 bits
    part(upper).view(at::kShort).copy_(bits.sub_(to).bitwise_right_shift_(kHalfBits));
  });
}

}  // namespace deepspeed::kernels
