// Provides the memory of large CPU tensors.
#pragma once

#include <cstddef>

namespace deepspeed::device {

class BlockPool;

/// Size in bytes from which tensors are allocated in the pool.
inline constexpr size_t kLeastPooled = size_t{1} << 18;

/// Makes torch allocate large CPU tensors in a pool of this library from now on. This applies to the whole
/// process and to tensors of kLeastPooled bytes or more (block_pool.h). In malloc's heap, gaps and the
/// separate mapping of each allocation of 32 MiB or more would cost memory and time. Does nothing if the
/// process has a limit on addresses or memory (RLIMIT_AS, RLIMIT_DATA), or if DEEPSPEED_TENSOR_POOL is 0.
/// Throws UsageError if that variable is neither 0 nor 1.
void pool_large_tensors();
/// Returns the pool, which is empty before pool_large_tensors().
BlockPool& large_block_pool();

}  // namespace deepspeed::device
