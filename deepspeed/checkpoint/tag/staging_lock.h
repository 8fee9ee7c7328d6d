// Locks a tag's folder, so that other processes know that it is being filled.
#pragma once

#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

/// Locks a tag's folder while it is being filled. The system releases the lock when the process ends.
class StagingLock {
 public:
  StagingLock() = default;
  explicit StagingLock(const Folder& folder);
  ~StagingLock();
  StagingLock(StagingLock&& other) noexcept;
  StagingLock& operator=(StagingLock&& other) noexcept;

  /// Returns whether this object holds the lock. False if another holds it, or the file system has no locks.
  bool is_held() const { return handle_ >= 0; }
  /// Returns whether another process held the lock when this object was made.
  bool is_taken() const { return is_taken_; }

 private:
  int handle_ = -1;
  bool is_taken_ = false;
};

/// Locks the folder, waiting at most a second for another process. The result may hold no lock (is_held()).
[[nodiscard]] StagingLock wait_for_lock(const Folder& folder);

struct LockedStaging {
  Folder folder;
  StagingLock lock;  // holds nothing on a file system without locks
};

/// Creates the folder `name` in `dir` if it is missing, and locks it. Throws IoError if the name is a link or
/// belongs to another user, or if another process keeps the lock. The error then names `tag` and, if known,
/// the process.
[[nodiscard]] LockedStaging lock_staging(const Folder& dir, const std::string& name, const std::string& tag);

/// Names this process in other processes' messages: "process 17 on host".
std::string own_process();

/// Records in the folder which process fills it, for error messages of other processes.
void note_owner(const Folder& folder);
/// Removes the note of note_owner().
void remove_owner_note(const Folder& folder);

}  // namespace deepspeed::checkpoint
