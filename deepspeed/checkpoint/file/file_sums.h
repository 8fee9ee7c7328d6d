// A file's checksums are made in chunks, so that a part of it can be verified without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepspeed::checkpoint {

/// Is the bytes of a chunk; the last one of a file may be shorter.
inline constexpr uint64_t kSumChunkBytes = 256 * 1024;

struct FileSums {
  uint64_t size = 0;           // of the file, in bytes
  std::vector<uint32_t> crcs;  // CRC-32 of each chunk
  friend bool operator==(const FileSums&, const FileSums&) = default;
};

/// Sums bytes as they are written one after the other.
class FileSummer {
 public:
  /// Adds bytes and returns the CRC-32 of these alone.
  uint32_t add(const void* data, size_t size);
  FileSums finish();

 private:
  FileSums sums_;
  uint32_t crc_ = 0;  // of the chunk that is not full yet
};

}  // namespace deepspeed::checkpoint
