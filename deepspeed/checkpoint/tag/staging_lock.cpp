#include "deepspeed/checkpoint/tag/staging_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

// Another process may hold the lock for a moment to remove leftovers.
constexpr int kLockAttempts = 20;
constexpr auto kLockPause = std::chrono::milliseconds(50);
constexpr const char* kOwnerNote = ".owner";

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown machine";
}

/// Returns what note_owner() wrote into the folder; "" if there is no note.
std::string owner_of(const Folder& folder) {
  std::array<char, 1000> note{};
  const int file = folder.open_file(kOwnerNote, O_RDONLY | O_NONBLOCK);
  const ssize_t count = file < 0 ? 0 : ::read(file, note.data(), note.size());
  if (file >= 0) ::close(file);
  return {note.data(), size_t(std::max<ssize_t>(count, 0))};
}

[[noreturn]] void refuse_tag_of_another_job(const Folder& dir, const std::string& name,
                                            const std::string& tag) {
  const auto staging = dir.find(name);
  const std::string owner = staging ? owner_of(*staging) : "";
  raise<IoError>("the tag '", tag, "' in ", dir.path(), " is being saved by another job",
                 owner.empty() ? "" : " (" + owner + ")",
                 "; wait until it is done, or save under another tag or into another folder");
}

}  // namespace

// Opens a new file description: a lock on the folder's own would be shared by all copies of that Folder.
StagingLock::StagingLock(const Folder& folder)
    : handle_(::openat(folder.handle(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (handle_ < 0 || ::flock(handle_, LOCK_EX | LOCK_NB) == 0) return;
  is_taken_ = errno == EWOULDBLOCK;
  ::close(std::exchange(handle_, -1));
}

StagingLock::~StagingLock() {
  if (handle_ >= 0) ::close(handle_);
}

StagingLock::StagingLock(StagingLock&& other) noexcept
    : handle_(std::exchange(other.handle_, -1)), is_taken_(other.is_taken_) {}

StagingLock& StagingLock::operator=(StagingLock&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(is_taken_, other.is_taken_);
  return *this;
}

StagingLock wait_for_lock(const Folder& folder) {
  StagingLock lock(folder);
  for (int attempt = 1; attempt < kLockAttempts && lock.is_taken(); ++attempt) {
    std::this_thread::sleep_for(kLockPause);
    lock = StagingLock(folder);
  }
  return lock;
}

LockedStaging lock_staging(const Folder& dir, const std::string& name, const std::string& tag) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    const Folder staging = dir.make(name);
    StagingLock lock = wait_for_lock(staging);
    if (lock.is_taken()) refuse_tag_of_another_job(dir, name, tag);
    // Another process may remove the folder or rename it to the tag at any moment, and a lock on a removed
    // folder is void. On a file system without locks, nothing is held.
    if (dir.has(name, staging)) return {staging, std::move(lock)};
  }
  refuse_tag_of_another_job(dir, name, tag);
}

std::string own_process() { return message("process ", ::getpid(), " on ", host_name()); }

void note_owner(const Folder& folder) {
  const int file = folder.open_file(kOwnerNote, O_WRONLY | O_CREAT | O_EXCL);
  if (file < 0) return;
  const std::string text = own_process();
  [[maybe_unused]] const ssize_t written = ::write(file, text.data(), text.size());
  ::close(file);
}

void remove_owner_note(const Folder& folder) {
  // It is missing if another machine began the tag.
  ::unlinkat(folder.handle(), kOwnerNote, 0);
}

}  // namespace deepspeed::checkpoint
