#include "deepspeed/checkpoint/tag/staging_lock.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/file/atomic_file.h"

namespace deepspeed::checkpoint {
namespace {

// Another process may hold it for a moment, to remove what is left over.
constexpr int kLockAttempts = 20;
constexpr auto kLockPause = std::chrono::milliseconds(50);
using std::filesystem::path;

path owner_note(const path& folder) { return folder / ".owner"; }

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown machine";
}

/// Returns what the process that fills the folder has noted there; "" where nothing is known.
std::string owner_of(const path& folder) {
  try {
    return read_text_file(owner_note(folder), /*max_bytes=*/1000);
  } catch (const IoError&) {
    return "";
  }
}

[[noreturn]] void refuse_tag_of_another_job(const path& folder, const std::string& tag) {
  const std::string owner = owner_of(folder);
  raise<IoError>("the tag '", tag, "' in ", folder.parent_path(), " is being saved by another job",
                 owner.empty() ? "" : " (" + owner + ")",
                 "; wait until it is done, or save under another tag or into another folder");
}

}  // namespace

StagingLock::StagingLock(const path& folder)
    : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (handle_ < 0) is_missing_ = errno == ENOENT;
  if (handle_ < 0 || ::flock(handle_, LOCK_EX | LOCK_NB) == 0) return;
  is_taken_ = errno == EWOULDBLOCK;
  ::close(std::exchange(handle_, -1));
}

StagingLock::~StagingLock() {
  if (handle_ >= 0) ::close(handle_);
}

StagingLock::StagingLock(StagingLock&& other) noexcept
    : handle_(std::exchange(other.handle_, -1)), is_taken_(other.is_taken_), is_missing_(other.is_missing_) {}

StagingLock& StagingLock::operator=(StagingLock&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(is_taken_, other.is_taken_);
  std::swap(is_missing_, other.is_missing_);
  return *this;
}

bool StagingLock::is_of(const path& folder) const {
  struct stat held {
  }, named{};
  return ::fstat(handle_, &held) == 0 && ::stat(folder.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

StagingLock wait_for_lock(const path& folder) {
  StagingLock lock(folder);
  for (int attempt = 1; attempt < kLockAttempts && lock.is_taken(); ++attempt) {
    std::this_thread::sleep_for(kLockPause);
    lock = StagingLock(folder);
  }
  return lock;
}

StagingLock lock_staging(const path& folder, const std::string& tag) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    make_folders(folder);
    StagingLock lock = wait_for_lock(folder);
    if (lock.is_taken()) refuse_tag_of_another_job(folder, tag);
    // Another process may remove the folder, or rename it to the tag, at any moment: a lock on what is gone
    // counts for nothing, and a folder that was gone when it was opened is not locked, though another may
    // stand there by now. Where the file system knows no locks nothing is held.
    if (lock.is_held() ? lock.is_of(folder) : !lock.is_missing()) return lock;
  }
  refuse_tag_of_another_job(folder, tag);
}

std::string own_process() { return message("process ", ::getpid(), " on ", host_name()); }

void note_owner(const path& folder) { std::ofstream(owner_note(folder)) << own_process(); }

void remove_owner_note(const path& folder) {
  std::error_code ignored;  // there is none where another machine began the tag
  std::filesystem::remove(owner_note(folder), ignored);
}

}  // namespace deepspeed::checkpoint
