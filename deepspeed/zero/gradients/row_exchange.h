// Sums an embedding's gradient by sending only its nonzero rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

/// Replaces values, (rows, columns), by their sum over the ranks, equal on all of them. Zero rows are not
/// sent. The others travel in `dtype` with their indices, padded to the largest count of any rank. If that
/// saves nothing, the whole tensor is reduced. Waits for the device to count the rows. Collective.
void sum_rows(const comm::ProcessGroup& group, const at::Tensor& values, at::ScalarType dtype);

}  // namespace deepspeed::zero
