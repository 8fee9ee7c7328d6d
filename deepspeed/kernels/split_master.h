// Keeps fp32 masters in two halves of 16 bits each. The upper half is the model's bf16 weight itself. The
// lower half is a signed number, the difference between the bits of master and weight:
//   bits of the master = 2^16 * bits of the weight + lower
// The weight is the master rounded to the nearest bf16, halves away from zero, so that `lower` is in [-2^15,
// 2^15). Every fp32 has exactly one split, which joins to the same bits. This holds for zeros of both signs,
// subnormal numbers, infinities, and finite numbers whose weight is infinite. (With torch's rounding, halves
// to even, two masters would have the same split. The weight therefore differs from torch's by one unit in
// its last place at a half whose upper neighbour is odd.) A nan becomes the quiet one, 0x7fc00000.
//
// If a weight was changed from outside, it joins with the old lower half. The result is at most half a unit
// in the weight's last place away from the weight. A zero with a negative lower half, which no split
// produces, joins to zero.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Returns the masters, (n) fp32, of `upper`, (n) bf16, and `lower`, (n) int16. Both are contiguous and on
/// one device. Throws UsageError for another size, dtype or device.
at::Tensor join_master(const at::Tensor& upper, const at::Tensor& lower);
/// Writes the joined masters to `master`, (n) fp32, contiguous, on the device of both halves.
void join_master_into(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower);

/// Splits `master`, (n) fp32, into `upper`, (n) bf16, and `lower`, (n) int16. Throws as join_master() does.
void split_master(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower);

}  // namespace deepspeed::kernels
