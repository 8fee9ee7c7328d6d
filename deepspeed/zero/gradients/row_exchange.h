// Sums the gradient of an embedding by sending the rows that a rank has touched, in place of all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

/// values: (rows, columns); afterwards their sum over the ranks, the same on all of them. Rows of zeros stay
/// where they are; the others travel in `dtype` with their indices, padded to as many as the rank with the
/// most of them has. Where that is no less than the whole, the whole is reduced. Waits for the device: the
/// number of rows must be known. All ranks call it.
void sum_rows(const comm::ProcessGroup& group, const at::Tensor& values, at::ScalarType dtype);

}  // namespace deepspeed::zero
