// This reader reads parts of a file, and verifies them where its checksums are known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/io/direct_reader.h"

namespace deepspeed::checkpoint {

/// Reads cached bytes through the page cache, the rest with O_DIRECT and our own read-ahead: on a cold file
/// the kernel's read-ahead loses most of the disk's bandwidth. Not for two threads at once.
class FileReader {
 public:
  /// Opens the file. Throws IoError where it cannot be opened, CheckpointError where `sums` are of a file of
  /// another size.
  explicit FileReader(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Says whether what is read is compared with checksums.
  bool is_verified() const { return sums_.has_value(); }
  /// Returns the bytes that were read from the file so far.
  uint64_t bytes_read() const { return bytes_read_; }
  /// Returns the bytes that all readers of this process have read so far. The system's own count
  /// (/proc/self/io) misses what is read past the page cache.
  static uint64_t bytes_read_by_process();

  /// Reads `size` bytes from `offset` on. Throws CheckpointError where they lie behind the end, or differ
  /// from those that were written.
  void read(uint64_t offset, void* destination, uint64_t size) const;
  /// Frees the memory that holds bytes read ahead.
  void release() const { direct_.reset(); }

 private:
  /// Says whether the page cache has all of these bytes.
  bool is_cached(uint64_t offset, uint64_t size) const;
  bool read_directly(uint64_t offset, char* destination, uint64_t size) const;
  void read_plainly(uint64_t offset, char* destination, uint64_t size) const;
  void verify(uint64_t chunk, const char* bytes, uint64_t size) const;
  /// Reads a chunk of which only a part is wanted, and keeps it: the next call may want the rest.
  const std::string& edge_chunk(uint64_t chunk) const;

  std::filesystem::path path_;
  std::optional<FileSums> sums_;
  int file_ = -1;
  uint64_t size_ = 0;
  mutable std::string edge_;
  mutable uint64_t edge_index_ = UINT64_MAX;
  mutable uint64_t bytes_read_ = 0;
  mutable std::unique_ptr<io::DirectReader> direct_;
  mutable bool has_direct_ = true;  // until the file system refuses O_DIRECT
};

}  // namespace deepspeed::checkpoint
