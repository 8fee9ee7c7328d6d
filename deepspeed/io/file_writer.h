// Writes a new file from beginning to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include <fcntl.h>

#include "deepspeed/io/queue/transfer_queue.h"

namespace deepspeed::io {

enum class WriteMethod {
  kDirect,  // past the page cache with several blocks in progress; like kPlain if the file system cannot
  kPlain,   // write()
};

struct WriterOptions {
  WriteMethod method = WriteMethod::kDirect;
  /// Limits the memory that the writer allocates (kDirect), in bytes. It uses less for smaller files.
  size_t buffer_bytes = size_t{64} << 20;
  /// Accepts bytes while earlier ones are being written. If false, a full buffer must be written first.
  bool double_buffered = true;
};

/// Writes a file from beginning to end. Functions return 0 or an errno. After an error nothing more can be
/// written.
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  /// Reserves disk space for about this many bytes, if the file system can.
  virtual int reserve(uint64_t bytes) = 0;
  virtual int write(const void* data, size_t size) = 0;
  /// Ends the file. Its bytes and its length are then on the disk.
  virtual int finish() = 0;

 protected:
  /// Records an errno unless there is an earlier one. Returns the earliest.
  int keep(int error) { return error_ == 0 ? error_ = error : error_; }

  int error_ = 0;  // the first that occurred
};

/// Creates a new file, replacing an existing one. A link of that name is not followed. Throws IoError with
/// the path and the system's reason. If `folder` is the descriptor of an open folder, the file is created
/// there, under the last part of the path. A direct writer uses `queue`; null: the system's best.
std::unique_ptr<FileWriter> open_writer(const std::filesystem::path& path, const WriterOptions& options = {},
                                        int folder = AT_FDCWD,
                                        std::unique_ptr<TransferQueue> queue = nullptr);

}  // namespace deepspeed::io
