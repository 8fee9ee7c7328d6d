// Jobs that save into one folder see each other, for as long as their processes live.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace deepspeed::checkpoint {

/// Says to other processes that this one saves into a folder. The system takes that back when the process
/// ends, however it ends; on a file system without locks nobody is seen.
class FolderWriter {
 public:
  /// Enters this process, or finds it entered. Throws IoError where the folder cannot be made.
  static std::shared_ptr<FolderWriter> enter(const std::filesystem::path& folder);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  /// Names another process that saves into the folder, "process 17 on host"; "" where there is none.
  std::string other() const;
  /// Throws UsageError where the tag is there, this process has not saved it, and another one saves into the
  /// folder; without the tag it warns of the other one, once. Returns what tells the tag's folder from one
  /// that takes its place: "" without a tag.
  std::string check(const std::string& tag);
  /// Looks again once the tag is locked. Throws UsageError as check(), and where a tag came since then.
  /// before: what check() returned.
  void check_again(const std::string& tag, const std::string& before) const;
  /// Notes that this process has saved a tag: it may replace it.
  void note_saved(const std::string& tag);

 private:
  explicit FolderWriter(std::filesystem::path folder);
  bool lock_place();
  bool has_saved(const std::string& tag) const;
  /// Names the folder that has the tag's name; "" where there is none.
  std::string identity(const std::string& tag) const;
  [[noreturn]] void refuse(const std::string& tag, const std::string& job) const;

  std::filesystem::path folder_;
  int handle_ = -1;  // none: the file system has no locks
  int64_t place_ = 0;
  const int process_;         // that entered: a fork of it has no locks
  mutable std::mutex mutex_;  // a save may end on a thread of its own
  std::set<std::string> saved_;
  bool has_warned_ = false;
};

/// Returns the path <folder>/.writers.
std::filesystem::path writers_path(const std::filesystem::path& folder);

}  // namespace deepspeed::checkpoint
