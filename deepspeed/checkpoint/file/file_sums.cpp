#include "deepspeed/checkpoint/file/file_sums.h"

#include <algorithm>
#include <utility>

#include "deepspeed/checkpoint/file/crc32.h"

namespace deepspeed::checkpoint {

uint32_t FileSummer::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  uint32_t crc = 0;
  while (size > 0) {
    const size_t count = std::min<size_t>(size, kSumChunkBytes - sums_.size % kSumChunkBytes);
    const uint32_t of_piece = crc32(0, bytes, count);
    crc_ = combine_crc32(crc_, of_piece, count);
    crc = combine_crc32(crc, of_piece, count);
    sums_.size += count;
    bytes += count;
    size -= count;
    if (sums_.size % kSumChunkBytes == 0) sums_.crcs.push_back(std::exchange(crc_, 0));
  }
  return crc;
}

FileSums FileSummer::finish() {
  if (sums_.size % kSumChunkBytes != 0) sums_.crcs.push_back(crc_);
  crc_ = 0;
  return std::exchange(sums_, {});
}

}  // namespace deepspeed::checkpoint
