// Hashes that are equal on all machines. One is quick: FNV-1a, 64 bits
// (http://www.isthe.com/chongo/tech/comp/fnv). The other cannot be forged: HMAC-SHA-256 (FIPS 180-4, RFC
// 2104), by which both ends of a connection prove that they know a secret.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed {

class DEEPSPEED_API Hash {
 public:
  void add(std::string_view text) {
    for (const char character : text) add_byte(static_cast<unsigned char>(character));
    add_byte(0);
  }
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(number >> shift));
  }
  void add(double number) { add(std::bit_cast<uint64_t>(number)); }
  uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3ULL; }
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// Returns the 32 bytes of SHA-256.
DEEPSPEED_API std::string sha256(std::string_view bytes);

/// Returns the 32 bytes of HMAC-SHA-256.
DEEPSPEED_API std::string hmac_sha256(std::string_view key, std::string_view bytes);

/// Writes bytes as hexadecimal digits.
DEEPSPEED_API std::string hex(std::string_view bytes);

/// Returns whether both are equal, in a time that does not reveal where they differ.
DEEPSPEED_API bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns `count` bytes from the kernel's random generator. Throws IoError if it gives none.
DEEPSPEED_API std::string random_bytes(size_t count);

}  // namespace deepspeed
