// CRC-32 of long runs of bytes is made by instructions of the processor; twins lie in x86/ and arm/. Internal
// to crc32.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepspeed::checkpoint {

/// Says whether this processor has the instructions.
bool has_crc32_instructions();

/// Continues the inverted state `state` over `size` bytes: a multiple of 16, at least 64.
uint32_t crc32_by_instructions(uint32_t state, const uint8_t* bytes, size_t size);

}  // namespace deepspeed::checkpoint
