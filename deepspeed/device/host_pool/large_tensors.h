// Where large tensors of the CPU have their memory.
#pragma once

#include <cstddef>

namespace deepspeed::device {

class BlockPool;

/// Bytes from which on tensors lie in the pool.
inline constexpr size_t kLeastPooled = size_t{1} << 18;

/// From the first call on, tensors of kLeastPooled bytes and more that torch makes on the CPU, in the whole
/// process, lie in a pool of this library (block_pool.h), and no longer in malloc's heap: its gaps, and pages
/// of their own at each allocation of 32 MiB and more, cost memory and time. Smaller ones stay where they
/// were. Does nothing where the process has a limit on its addresses or memory (RLIMIT_AS, RLIMIT_DATA), or
/// DEEPSPEED_TENSOR_POOL is 0. Throws UsageError where that is neither 0 nor 1.
void pool_large_tensors();
/// Returns the pool, which is empty before pool_large_tensors().
BlockPool& large_block_pool();

}  // namespace deepspeed::device
