// HMAC-SHA-256 (FIPS 180-4, RFC 2104), by which ends of a connection show that they know a secret.
#pragma once

#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Returns the 32 bytes of SHA-256.
DEEPSPEED_API std::string sha256(std::string_view bytes);

/// Returns the 32 bytes of HMAC-SHA-256.
DEEPSPEED_API std::string hmac_sha256(std::string_view key, std::string_view bytes);

/// Writes bytes as hexadecimal digits.
DEEPSPEED_API std::string hex(std::string_view bytes);

/// Compares in a time that does not tell where texts differ.
DEEPSPEED_API bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns bytes of the kernel's random generator. Throws IoError where it gives none.
DEEPSPEED_API std::string random_bytes(size_t count);

}  // namespace deepspeed
