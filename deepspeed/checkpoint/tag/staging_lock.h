// A lock says to other processes that a tag's folder is being filled.
#pragma once

#include <filesystem>
#include <string>

namespace deepspeed::checkpoint {

/// While it lives, other processes see that a tag's folder is being filled. The system ends it with the
/// process, however that ends.
class StagingLock {
 public:
  StagingLock() = default;
  explicit StagingLock(const std::filesystem::path& folder);
  ~StagingLock();
  StagingLock(StagingLock&& other) noexcept;
  StagingLock& operator=(StagingLock&& other) noexcept;

  /// Says whether this object has the lock. False where another one has it, or the file system has no locks.
  bool is_held() const { return handle_ >= 0; }
  /// Says whether another process has the lock.
  bool is_taken() const { return is_taken_; }
  /// Says whether the folder did not exist.
  bool is_missing() const { return is_missing_; }
  /// Says whether the folder that the lock holds is the one that has this name now.
  bool is_of(const std::filesystem::path& folder) const;

 private:
  int handle_ = -1;
  bool is_taken_ = false;
  bool is_missing_ = false;
};

/// Waits a second at most for another process's lock to end; the result may hold nothing.
[[nodiscard]] StagingLock wait_for_lock(const std::filesystem::path& folder);

/// Makes the folder where there is none and locks it. On a file system without locks the result holds
/// nothing. Throws IoError, naming the process where that is known, where another one goes on holding it.
[[nodiscard]] StagingLock lock_staging(const std::filesystem::path& folder, const std::string& tag);

/// Names this process for messages of others: "process 17 on host".
std::string own_process();

/// Notes in the folder which process fills it, for the error of another one.
void note_owner(const std::filesystem::path& folder);
/// Removes the note of note_owner().
void remove_owner_note(const std::filesystem::path& folder);

}  // namespace deepspeed::checkpoint
