// Computes the checksum of zip records: CRC-32 with polynomial 0xEDB88320.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Continues the checksum `crc` (0 at the start) over `size` bytes.
uint32_t crc32(uint32_t crc, const void* data, size_t size);

/// Returns the checksum of two consecutive runs of bytes from the checksums of both. `second_size` is the
/// length of the second run in bytes.
uint32_t combine_crc32(uint32_t first, uint32_t second, uint64_t second_size);

}  // namespace deepspeed::checkpoint
