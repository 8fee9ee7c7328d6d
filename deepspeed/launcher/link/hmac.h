// HMAC-SHA-256 (FIPS 180-4, RFC 2104), by which both ends of a link show that they know the job's secret.
#pragma once

#include <string>
#include <string_view>

namespace deepspeed::launcher {

/// Returns the 32 bytes of SHA-256.
std::string sha256(std::string_view bytes);

/// Returns the 32 bytes of HMAC-SHA-256.
std::string hmac_sha256(std::string_view key, std::string_view bytes);

/// Writes bytes as hexadecimal digits.
std::string hex(std::string_view bytes);

/// Compares in a time that does not tell where texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns bytes of the kernel's random generator. Throws IoError where it gives none.
std::string random_bytes(size_t count);

}  // namespace deepspeed::launcher
