// The processor has an instruction for the polynomial of zip: eight bytes at once.
#include "deepspeed/checkpoint/file/crc32_instructions.h"

#include <cstring>

#include <arm_acle.h>
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

namespace deepspeed::checkpoint {

bool has_crc32_instructions() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

__attribute__((target("+crc"))) uint32_t crc32_by_instructions(uint32_t state, const uint8_t* bytes,
                                                               size_t size) {
  for (; size > 0; bytes += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    state = __crc32d(state, word);
  }
  return state;
}

}  // namespace deepspeed::checkpoint
