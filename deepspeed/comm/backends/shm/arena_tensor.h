// Tensors whose memory the other ranks of this machine can read. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::comm {

/// Returns an uninitialised tensor in the arena of the process, of one dimension, on the CPU. Undefined where
/// the arena has no room. Its memory lives as long as the tensor, whatever becomes of the groups.
at::Tensor empty_in_arena(int64_t numel, at::ScalarType dtype);

}  // namespace deepspeed::comm
