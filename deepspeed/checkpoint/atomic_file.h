// Replaces a file so that a reader, even after a crash, finds the old content or the whole new one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace deepspeed::checkpoint {

/// Writes to a temporary name beside `path`; `commit` makes the bytes durable and gives them the final name
/// (fsync, rename, fsync of the folder). Without `commit` the destructor removes the temporary file. All
/// throw IoError with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
};

/// Replaces the content of a small text file.
void write_text_atomically(const std::filesystem::path& path, const std::string& text);

}  // namespace deepspeed::checkpoint
