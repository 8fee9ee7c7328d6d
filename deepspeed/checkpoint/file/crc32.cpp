// Long runs of bytes use the processor's own instructions if it has them. Otherwise eight table look-ups
// process eight bytes at once ("slicing by 8"), which is several times faster than one byte at a time.
#include "deepspeed/checkpoint/file/crc32.h"

#include <array>
#include <cstring>

#include "deepspeed/checkpoint/file/crc32_instructions.h"

namespace deepspeed::checkpoint {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][byte] = value;
  }
  for (size_t table = 1; table < 8; ++table) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[table - 1][byte];
      tables[table][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();
constexpr size_t kLeastByInstructions = 64;

/// Multiplies two polynomials modulo the checksum's polynomial; bit 31 is the coefficient of x^0.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a >> 31) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return product;
}

/// Returns x^(8 * 2^k) modulo the checksum's polynomial, at index k.
constexpr std::array<uint32_t, 64> make_byte_powers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = uint32_t{1} << 23;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}

constexpr std::array<uint32_t, 64> kBytePowers = make_byte_powers();

}  // namespace

uint32_t combine_crc32(uint32_t first, uint32_t second, uint64_t second_size) {
  // Appending n zero bytes multiplies a checksum by x^(8n); the inversions before and after cancel out.
  for (size_t k = 0; second_size != 0; ++k, second_size >>= 1) {
    if ((second_size & 1) != 0) first = multiply(first, kBytePowers[k]);
  }
  return first ^ second;
}

uint32_t crc32(uint32_t crc, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  crc = ~crc;
  static const bool has_instructions = has_crc32_instructions();
  if (has_instructions && size >= kLeastByInstructions) {
    const size_t whole = size / 16 * 16;
    crc = crc32_by_instructions(crc, bytes, whole);
    bytes += whole;
    size -= whole;
  }
  for (; size >= 8; bytes += 8, size -= 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= crc;
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^ kTables[2][(high >> 8) & 0xFF] ^
          kTables[1][(high >> 16) & 0xFF] ^ kTables[0][high >> 24];
  }
  for (; size > 0; ++bytes, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xFF];
  return ~crc;
}

}  // namespace deepspeed::checkpoint
