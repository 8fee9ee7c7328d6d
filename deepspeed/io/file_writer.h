// A writer writes a new file from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include <fcntl.h>

namespace deepspeed::io {

enum class WriteMethod {
  kDirect,  // past the page cache, several blocks under way; where the file system cannot, as kPlain
  kPlain,   // write()
};

struct WriterOptions {
  WriteMethod method = WriteMethod::kDirect;
  /// Bounds the bytes of memory that the writer takes for itself (kDirect); the file's size where that is
  /// less.
  size_t buffer_bytes = size_t{64} << 20;
  /// Says how a full buffer is treated. true: bytes are taken while others are on their way; false: a full
  /// buffer is awaited as a whole.
  bool double_buffered = true;
};

/// Writes a file in order. Functions return 0 or the errno of what failed; after an error nothing can be
/// written.
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  /// Takes room on the disk for a file of about so many bytes, where the file system can.
  virtual int reserve(uint64_t bytes) = 0;
  virtual int write(const void* data, size_t size) = 0;
  /// Ends the file: all bytes, and its length, are on the disk afterwards.
  virtual int finish() = 0;
};

/// Makes a new file, in place of one that has the name; a link there is not followed. Throws IoError with the
/// path and the system's reason. `folder`: an open folder, in which the file gets the last part of the path
/// as its name.
std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options = {},
                                        int folder = AT_FDCWD);

}  // namespace deepspeed::io
