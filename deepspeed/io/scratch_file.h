// Opens files without a name, which disappear with the process however it ends.
#pragma once

#include <cstdint>
#include <filesystem>

#include "deepspeed/base/error.h"

namespace deepspeed::io {

/// Opens a nameless file in `folder`, past the page cache if the file system can. Returns the descriptor,
/// which the caller closes, or -1 with errno. With `needs_direct` it also fails if the page cache cannot be
/// bypassed (EINVAL).
int open_scratch_file(const std::filesystem::path& folder, bool needs_direct);

/// Owns a nameless file that grows by whole blocks. Its errors name the caller's source file and begin with
/// `key`.
class ScratchFile {
 public:
  /// Creates the file in `folder`, and the folder if it does not exist. Throws IoError naming the folder.
  ScratchFile(std::filesystem::path folder, const FirstPart& key);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Extends the file by `bytes` and returns the offset of the new space. Throws IoError if the disk has no
  /// room, naming the folder and `content`, what the space is for.
  uint64_t grow(size_t bytes, const char* content);
  int handle() const { return file_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path folder_;
  FirstPart key_;
  int file_;
  int64_t bytes_ = 0;
};

}  // namespace deepspeed::io
