#include "deepspeed/checkpoint/file_sums.h"

#include <algorithm>
#include <utility>

#include "deepspeed/checkpoint/crc32.h"

namespace deepspeed::checkpoint {

void FileSummer::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const size_t count = std::min<size_t>(size, kSumChunkBytes - sums_.size % kSumChunkBytes);
    crc_ = crc32(crc_, bytes, count);
    sums_.size += count;
    bytes += count;
    size -= count;
    if (sums_.size % kSumChunkBytes == 0) sums_.crcs.push_back(std::exchange(crc_, 0));
  }
}

FileSums FileSummer::finish() {
  if (sums_.size % kSumChunkBytes != 0) sums_.crcs.push_back(crc_);
  crc_ = 0;
  return std::exchange(sums_, {});
}

}  // namespace deepspeed::checkpoint
