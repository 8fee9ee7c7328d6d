// Replaces a file so that a reader finds either the old or the whole new content, even after a crash.
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

/// Writes a file under a temporary name in the same folder. commit() syncs it, renames it to the final name
/// and syncs the folder. Without commit() the destructor removes the temporary file. All functions throw
/// IoError with the path and the system's reason. The folder is held open. Links under either name are
/// replaced, not followed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, const io::WriterOptions& options = {});
  /// Writes the file `name` in a folder.
  AtomicFile(Folder folder, const std::string& name, const io::WriterOptions& options = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Reserves disk space for the whole file if the file system can. Throws IoError if there is too little.
  void reserve(uint64_t bytes);
  /// Appends bytes and returns their CRC-32.
  uint32_t write(const void* data, size_t size);
  /// Gives the durable file its final name and returns its checksums.
  FileSums commit();

 private:
  /// Throws IoError with the system's reason. If the disk is full, the error also tells the space needed.
  [[noreturn]] void fail(const char* action, int error) const;

  Folder folder_;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<io::FileWriter> writer_;
  uint64_t needed_bytes_ = 0;  // 0 if unknown
  uint64_t written_bytes_ = 0;
  FileSummer summer_;
};

/// Makes the folder's entries durable. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

/// Creates missing folders along the path, durably. Throws IoError.
void make_folders(const std::filesystem::path& folder);

/// Writes a small text file, durably, replacing an existing one.
void write_text_atomically(const std::filesystem::path& path, const std::string& text);
void write_text_atomically(const Folder& folder, const std::string& name, const std::string& text);

}  // namespace deepspeed::checkpoint
