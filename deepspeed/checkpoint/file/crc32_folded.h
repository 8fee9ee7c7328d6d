// Computes CRC-32 of long runs of bytes by carry-less multiplication. Versions for x86 and for other
// processors are in x86/ and no_x86/. Internal to crc32.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Returns whether this processor has the instructions.
bool can_fold_crc32();

/// Continues the inverted checksum `state`. `size` is a multiple of 16 bytes, at least 64.
uint32_t fold_crc32(uint32_t state, const uint8_t* bytes, size_t size);

}  // namespace deepspeed::checkpoint
