#include "deepspeed/checkpoint/file/file_reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/file/crc32.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint64_t kPieceBytes =
    4 * kSumChunkBytes;  // small enough to stay cached between the read and the checksum

std::atomic<uint64_t> bytes_of_all_readers{0};

}  // namespace

FileReader::FileReader(std::filesystem::path path, std::optional<FileSums> sums)
    : path_(std::move(path)), sums_(std::move(sums)) {
  file_ = open_regular_file(path_);
  struct stat status {};
  if (::fstat(file_, &status) == 0) size_ = uint64_t(status.st_size);
  if (!sums_ || sums_->size == size_) return;
  ::close(file_);
  raise<CheckpointError>(path_, " has ", size_, " bytes, expected ", sums_->size,
                         ": it is torn or was replaced");
}

FileReader::~FileReader() { ::close(file_); }

uint64_t FileReader::bytes_read_by_process() { return bytes_of_all_readers; }

bool FileReader::is_cached(uint64_t offset, uint64_t size) const {
  // RWF_NOWAIT would tell as well, but such a read starts the page cache's own read-ahead.
  static const auto page = uint64_t(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset / page * page, bytes = offset + size - begin;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_, off_t(begin));
  if (mapped == MAP_FAILED) return true;
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  const bool is_known = ::mincore(mapped, bytes, pages.data()) == 0;
  ::munmap(mapped, bytes);
  return !is_known || std::ranges::all_of(pages, [](unsigned char state) { return (state & 1) != 0; });
}

bool FileReader::read_directly(uint64_t offset, char* destination, uint64_t size) const {
  if (has_direct_ && !direct_) {
    // This opens the same file again, even if another file has taken its name since.
    const std::string own = "/proc/self/fd/" + std::to_string(file_);
    const int file = ::open(own.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    has_direct_ = file >= 0;  // some file systems do not support O_DIRECT
    if (has_direct_) direct_ = std::make_unique<io::DirectReader>(file);
  }
  return has_direct_ && direct_->read(offset, destination, size) == 0;
}

void FileReader::read_plainly(uint64_t offset, char* destination, uint64_t size) const {
  bytes_read_ += size;
  bytes_of_all_readers.fetch_add(size,
                                 std::memory_order_relaxed);  // relaxed, because no other data depends on it
  if (size > 0 && !is_cached(offset, size) && read_directly(offset, destination, size)) return;
  while (size > 0) {
    const ssize_t count = ::pread(file_, destination, std::min<uint64_t>(size, 1u << 30), off_t(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) raise<IoError>("cannot read ", path_, ": ", std::strerror(errno));
    if (count == 0) raise<CheckpointError>(path_, " became shorter while it was read");
    destination += count;
    offset += uint64_t(count);
    size -= uint64_t(count);
  }
}

void FileReader::verify(uint64_t chunk, const char* bytes, uint64_t size) const {
  if (crc32(0, bytes, size) == sums_->crcs[chunk]) return;
  raise<CheckpointError>(path_, " is altered: its bytes from ", chunk * kSumChunkBytes, " to ",
                         chunk * kSumChunkBytes + size, " do not match their checksum");
}

const std::string& FileReader::edge_chunk(uint64_t chunk) const {
  if (edge_index_ == chunk) return edge_;
  edge_index_ = UINT64_MAX;
  const uint64_t begin = chunk * kSumChunkBytes;
  edge_.resize(std::min(kSumChunkBytes, size_ - begin));
  read_plainly(begin, edge_.data(), edge_.size());
  verify(chunk, edge_.data(), edge_.size());
  edge_index_ = chunk;
  return edge_;
}

void FileReader::read(uint64_t offset, void* destination, uint64_t size) const {
  if (offset > size_ || size > size_ - offset) {
    raise<CheckpointError>(path_, " is torn: it refers to bytes behind its end");
  }
  auto* target = static_cast<char*>(destination);
  if (!sums_) return read_plainly(offset, target, size);
  while (size > 0) {
    const uint64_t chunk = offset / kSumChunkBytes, within = offset % kSumChunkBytes;
    const uint64_t chunk_bytes = std::min(kSumChunkBytes, size_ - chunk * kSumChunkBytes);
    uint64_t count = std::min(size, chunk_bytes - within);
    if (count < chunk_bytes) {
      std::memcpy(target, edge_chunk(chunk).data() + within, count);
    } else {
      count = std::min(kPieceBytes, size >= kSumChunkBytes ? size / kSumChunkBytes * kSumChunkBytes : count);
      read_plainly(offset, target, count);
      for (uint64_t done = 0; done < count; done += kSumChunkBytes) {
        verify((offset + done) / kSumChunkBytes, target + done, std::min(kSumChunkBytes, count - done));
      }
    }
    target += count;
    offset += count;
    size -= count;
  }
}

}  // namespace deepspeed::checkpoint
