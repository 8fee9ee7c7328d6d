// Writes a new file from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace deepspeed::io {

enum class WriteMethod {
  kDirect,  // past the page cache, several blocks under way; where the file system cannot, as kPlain
  kPlain,   // write()
};

struct WriterOptions {
  WriteMethod method = WriteMethod::kDirect;
  /// Bytes of memory that the writer takes for itself (kDirect), at most: the file's where that is less.
  size_t buffer_bytes = size_t{64} << 20;
  /// Takes bytes while others are on their way; else it waits for all of a full buffer.
  bool double_buffered = true;
};

/// Its functions return 0 or the errno of what failed; afterwards nothing can be written.
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  /// Takes room on the disk for a file of about so many bytes, where the file system can.
  virtual int reserve(uint64_t bytes) = 0;
  virtual int write(const void* data, size_t size) = 0;
  /// All bytes, and the file's length, are on the disk afterwards.
  virtual int finish() = 0;
  virtual WriteMethod method() const = 0;
};

/// Makes the file, or empties it. Throws IoError with the path and the system's reason.
std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options = {});

}  // namespace deepspeed::io
