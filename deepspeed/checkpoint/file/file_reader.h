// Reads parts of a file and verifies them if its checksums are known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/io/direct_reader.h"

namespace deepspeed::checkpoint {

/// Reads cached bytes through the page cache, others with O_DIRECT and its own read-ahead. On an uncached
/// file the kernel's read-ahead loses most of the disk's bandwidth. Not thread-safe.
class FileReader {
 public:
  /// Opens the file. Throws IoError if it cannot be opened, and CheckpointError if its size is not that of
  /// `sums`.
  explicit FileReader(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Returns whether reads are compared with checksums.
  bool is_verified() const { return sums_.has_value(); }
  /// Returns the number of bytes read from the file so far.
  uint64_t bytes_read() const { return bytes_read_; }
  /// Returns the number of bytes read by all readers of this process so far. The system's count in
  /// /proc/self/io misses reads that bypass the page cache.
  static uint64_t bytes_read_by_process();

  /// Reads `size` bytes at `offset`. Throws CheckpointError if they lie past the end or do not match their
  /// checksum.
  void read(uint64_t offset, void* destination, uint64_t size) const;
  /// Frees the read-ahead buffer until the next read.
  void release() const { direct_.reset(); }

 private:
  /// Returns whether all of these bytes are in the page cache. True if unknown.
  bool is_cached(uint64_t offset, uint64_t size) const;
  bool read_directly(uint64_t offset, char* destination, uint64_t size) const;
  void read_plainly(uint64_t offset, char* destination, uint64_t size) const;
  void verify(uint64_t chunk, const char* bytes, uint64_t size) const;
  /// Returns a whole chunk (kSumChunkBytes) by its number, after comparing its checksum. read() uses it for a
  /// part of a chunk. The chunk is kept, because the next read may want the rest.
  const std::string& edge_chunk(uint64_t chunk) const;

  std::filesystem::path path_;
  std::optional<FileSums> sums_;
  int file_ = -1;
  uint64_t size_ = 0;
  mutable std::string edge_;
  mutable uint64_t edge_index_ = UINT64_MAX;
  mutable uint64_t bytes_read_ = 0;
  mutable std::unique_ptr<io::DirectReader> direct_;
  mutable bool has_direct_ = true;  // false if the file system refuses O_DIRECT
};

}  // namespace deepspeed::checkpoint
