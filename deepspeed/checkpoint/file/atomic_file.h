// This replaces a file so that a reader, even after a crash, finds the old content or the whole new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/checkpoint/file/folder.h"
#include "deepspeed/io/file_writer.h"

namespace deepspeed::checkpoint {

/// Writes to a temporary name beside the file; `commit` makes the bytes durable and gives them the final name
/// (fsync, rename, fsync of the folder). Without `commit` the destructor removes the temporary file. All
/// throw IoError with the path and the system's reason. The folder is held open, and links under both names
/// are replaced, not followed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, const io::WriterOptions& options = {});
  /// Writes the file `name` of a folder.
  AtomicFile(Folder folder, const std::string& name, const io::WriterOptions& options = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Takes room for that many bytes on the disk, where the file system can. Throws IoError where there is too
  /// little.
  void reserve(uint64_t bytes);
  /// Returns the CRC-32 of these bytes.
  uint32_t write(const void* data, size_t size);
  /// Makes the file durable under its name; returns the checksums of what was written.
  FileSums commit();

 private:
  /// Throws IoError with the system's reason; for a full disk also with the room that the file needs.
  [[noreturn]] void fail(const char* action, int error) const;

  Folder folder_;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<io::FileWriter> writer_;
  uint64_t needed_bytes_ = 0;  // 0 while it is not known
  uint64_t written_bytes_ = 0;
  FileSummer summer_;
};

/// Makes the names inside of a folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

/// Makes a folder and those above it where they do not exist, durably. Throws IoError.
void make_folders(const std::filesystem::path& folder);

/// Replaces the content of a small text file.
void write_text_atomically(const std::filesystem::path& path, const std::string& text);
void write_text_atomically(const Folder& folder, const std::string& name, const std::string& text);

}  // namespace deepspeed::checkpoint
