// Allocates tensors in memory that the other ranks of this machine can read. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::comm {

/// Returns an uninitialized 1-D CPU tensor in this process's arena (shm/arena.h). Returns an undefined tensor
/// and logs why if there is no room. The memory lives as long as the tensor, even if the groups end.
at::Tensor empty_in_arena(int64_t numel, at::ScalarType dtype);

}  // namespace deepspeed::comm
