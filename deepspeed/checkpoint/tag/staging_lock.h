// A lock says to other processes that a tag's folder is being filled.
#pragma once

#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

/// While it lives, other processes see that a tag's folder is being filled. The system ends it with the
/// process, however that ends.
class StagingLock {
 public:
  StagingLock() = default;
  explicit StagingLock(const Folder& folder);
  ~StagingLock();
  StagingLock(StagingLock&& other) noexcept;
  StagingLock& operator=(StagingLock&& other) noexcept;

  /// Says whether this object has the lock. False where another one has it, or the file system has no locks.
  bool is_held() const { return handle_ >= 0; }
  /// Says whether another process has the lock.
  bool is_taken() const { return is_taken_; }

 private:
  int handle_ = -1;
  bool is_taken_ = false;
};

/// Waits a second at most for another process's lock to end; the result may hold nothing.
[[nodiscard]] StagingLock wait_for_lock(const Folder& folder);

struct LockedStaging {
  Folder folder;
  StagingLock lock;  // holds nothing on a file system without locks
};

/// Makes the folder `name` in `dir` where there is none and locks it. Throws IoError where it is a link or
/// another user's, and, naming the process where that is known, where another one goes on holding it.
[[nodiscard]] LockedStaging lock_staging(const Folder& dir, const std::string& name, const std::string& tag);

/// Names this process for messages of others: "process 17 on host".
std::string own_process();

/// Notes in the folder which process fills it, for the error of another one.
void note_owner(const Folder& folder);
/// Removes the note of note_owner().
void remove_owner_note(const Folder& folder);

}  // namespace deepspeed::checkpoint
