// A hash that is the same on all machines: FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv).
#pragma once

#include <bit>
#include <cstdint>
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

}  // namespace deepspeed
