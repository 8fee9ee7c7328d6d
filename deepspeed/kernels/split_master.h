// fp32 masters are kept in two halves of 16 bits each. The upper half is a bf16 number that is a weight of a
// model itself, the lower one, a signed number, is what the master's bits are ahead of it:
//   bits of the master = 2^16 * bits of the weight + lower
// The weight is the master rounded to the nearest bf16, halves away from zero, so that `lower` lies in
// [-2^15, 2^15) and every fp32 has one split, which joins to the same bits: zeros of both signs, subnormal
// numbers, infinities, and finite numbers whose weight is infinite. (With halves to even, torch's rounding,
// two masters would have one split. So the weight differs from torch's by one unit in its last place at a
// half whose upper neighbour is odd.) A nan becomes the quiet one, 0x7fc00000.
//
// A weight that was changed from outside joins with the old lower half to a number that is at most half a
// unit in the last place of the weight away from it; a zero with a lower half below 0, which no split has,
// joins to zero.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Joins masters, (n) fp32, from `upper` (n) bf16 and `lower` (n) int16, contiguous and on one device. Throws
/// UsageError where they do not fit.
at::Tensor join_master(const at::Tensor& upper, const at::Tensor& lower);
/// Joins masters into `master`, (n) fp32, contiguous, on the device of both halves.
void join_master_into(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower);

/// Writes both halves of `master` (n) fp32. Throws as join_master().
void split_master(const at::Tensor& master, const at::Tensor& upper, const at::Tensor& lower);

}  // namespace deepspeed::kernels
