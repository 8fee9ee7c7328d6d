#include "deepspeed/base/hash.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/random.h>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

constexpr size_t kShaBlock = 64;

constexpr std::array<uint32_t, 64> kShaConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using ShaState = std::array<uint32_t, 8>;

void take_block(ShaState& state, const unsigned char* block) {
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t byte = 0; byte < 4; ++byte) words[i] = words[i] << 8 | block[4 * i + byte];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t before = words[i - 15], last = words[i - 2];
    const uint32_t s0 = std::rotr(before, 7) ^ std::rotr(before, 18) ^ before >> 3;
    const uint32_t s1 = std::rotr(last, 17) ^ std::rotr(last, 19) ^ last >> 10;
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kShaConstants[i] + words[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const ShaState added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string padded(bytes);
  padded.push_back('\x80');
  while (padded.size() % kShaBlock != 56) padded.push_back('\0');
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<char>(bits >> shift));
  ShaState state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (size_t begin = 0; begin < padded.size(); begin += kShaBlock)
    take_block(state, reinterpret_cast<const unsigned char*>(padded.data()) + begin);
  std::string digest;
  for (const uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) digest.push_back(static_cast<char>(word >> shift));
  }
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string block = key.size() > kShaBlock ? sha256(key) : std::string(key);
  block.resize(kShaBlock, '\0');
  std::string inner, outer;
  for (const char byte : block) {
    inner.push_back(static_cast<char>(byte ^ 0x36));
    outer.push_back(static_cast<char>(byte ^ 0x5c));
  }
  return sha256(outer + sha256(inner + std::string(bytes)));
}

std::string hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 0xF]);
  }
  return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return difference == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
    raise<IoError>("the kernel gives no random bytes: ", std::strerror(errno));
  return bytes;
}

}  // namespace deepspeed
