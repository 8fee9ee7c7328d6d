// Zip records have this checksum (CRC-32, polynomial 0xEDB88320).
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Continues `crc` (0 at the start) over `size` bytes.
uint32_t crc32(uint32_t crc, const void* data, size_t size);

/// Returns the checksum of two runs of bytes, one behind the other, from the checksums of each.
/// `second_size`: bytes of the second run.
uint32_t combine_crc32(uint32_t first, uint32_t second, uint64_t second_size);

}  // namespace deepspeed::checkpoint
