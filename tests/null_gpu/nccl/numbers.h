// Sums and their kin over the numbers of NCCL's types.
#pragma once

#include <cstddef>

#include <nccl.h>

namespace null_gpu {

size_t bytes_of(ncclDataType_t type);
/// Combines `count` numbers at `from` into those at `into`.
void combine(char* into, const char* from, size_t count, ncclDataType_t type, ncclRedOp_t operation);
/// Divides numbers by the number of ranks.
void divide(char* numbers, size_t count, ncclDataType_t type, int by);

}  // namespace null_gpu
