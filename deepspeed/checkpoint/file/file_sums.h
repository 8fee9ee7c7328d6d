// Keeps checksums of a file by chunk, so that a part can be verified without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepspeed::checkpoint {

/// Size of a chunk in bytes; the last chunk of a file may be shorter.
inline constexpr uint64_t kSumChunkBytes = 256 * 1024;

struct FileSums {
  uint64_t size = 0;           // of the file, in bytes
  std::vector<uint32_t> crcs;  // CRC-32 of each chunk
  friend bool operator==(const FileSums&, const FileSums&) = default;
};

/// Computes the checksums of a file while it is written in order.
class FileSummer {
 public:
  /// Adds bytes and returns the CRC-32 of only these bytes.
  uint32_t add(const void* data, size_t size);
  FileSums finish();

 private:
  FileSums sums_;
  uint32_t crc_ = 0;  // of the incomplete last chunk
};

}  // namespace deepspeed::checkpoint
