// Computes CRC-32 of long runs of bytes by instructions of the processor. Versions are in x86/ and arm/.
// Internal to crc32.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Returns whether this processor has the instructions that crc32_by_instructions() uses.
bool has_crc32_instructions();

/// Continues `state`, a checksum with all bits inverted, over `bytes`. The result is inverted too. `size` is
/// a multiple of 16 bytes, at least 64.
uint32_t crc32_by_instructions(uint32_t state, const uint8_t* bytes, size_t size);

}  // namespace deepspeed::checkpoint
