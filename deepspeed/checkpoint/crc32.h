// The checksum of zip records (CRC-32, polynomial 0xEDB88320).
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Continues `crc` (0 at the start) over `size` bytes.
uint32_t crc32(uint32_t crc, const void* data, size_t size);

}  // namespace deepspeed::checkpoint
