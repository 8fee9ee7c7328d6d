// Lets jobs that save into the same folder detect each other while their processes are alive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace deepspeed::checkpoint {

/// Tells other processes that this one saves into a folder. The mark is a file lock, which ends with the
/// process. On a file system without locks no process is detected.
class FolderWriter {
 public:
  /// Returns this process's writer for the folder, registering it at first use. Throws IoError if the folder
  /// cannot be created.
  static std::shared_ptr<FolderWriter> enter(const std::filesystem::path& folder);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  /// Names another process that saves into the folder: "process 17 on host", or "".
  std::string other() const;
  /// Checks, before the tag is locked, that a save does not replace another job's tag. Throws UsageError if
  /// the tag exists, this process has not saved it, and another process saves into the folder. Otherwise
  /// warns once if there is such a process. Returns a text for check_again() that identifies the tag's folder
  /// and changes if the folder is replaced; "" without a tag.
  std::string check(const std::string& tag);
  /// Checks again after the tag is locked. Throws UsageError like check(), and also if the tag has appeared
  /// or been replaced since check(), which returned `before`.
  void check_again(const std::string& tag, const std::string& before) const;
  /// Records that this process has saved a tag and may replace it.
  void note_saved(const std::string& tag);

 private:
  explicit FolderWriter(std::filesystem::path folder);
  bool lock_place();
  bool has_saved(const std::string& tag) const;
  /// Returns a text that identifies the folder of the tag; "" if there is none.
  std::string identity(const std::string& tag) const;
  [[noreturn]] void refuse(const std::string& tag, const std::string& job) const;

  std::filesystem::path folder_;
  int handle_ = -1;  // -1: the file system has no locks
  int64_t place_ = 0;
  const int process_;         // the process that entered; a fork of it has no locks
  mutable std::mutex mutex_;  // a save may end on its own thread
  std::set<std::string> saved_;
  bool has_warned_ = false;
};

/// Returns <folder>/.writers, the file that the processes lock.
std::filesystem::path writers_path(const std::filesystem::path& folder);

}  // namespace deepspeed::checkpoint
