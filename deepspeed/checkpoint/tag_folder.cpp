#include "deepspeed/checkpoint/tag_folder.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/atomic_file.h"
#include "deepspeed/checkpoint/layout.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kTagFolderWhere = "checkpoint.tag_folder";
constexpr const char* kSaving = ".saving";
constexpr const char* kRemoved = ".removed";
using std::filesystem::path;

/// Beside the folder of the tag, which may lie in a folder of its own ("run/step5").
std::string beside(const std::string& tag, const char* ending) {
  const path whole(tag);
  return (whole.parent_path() / ("." + whole.filename().string() + ending)).string();
}

void rename_folder(const path& from, const path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  raise<IoError>(kTagFolderWhere, "cannot rename ", from, " to ", to, ": ", std::strerror(errno));
}

void remove_folder(const path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) raise<IoError>(kTagFolderWhere, "cannot remove ", folder, ": ", error.message());
}

/// Both names at one moment; false where the file system cannot.
bool exchange(const path& a, const path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

bool is_leftover(const path& entry) {
  const std::string name = entry.filename().string();
  if (name.starts_with('.')) return name.ends_with(kSaving) || name.ends_with(kRemoved);
  if (!name.ends_with(".tmp")) return false;
  const path folder = entry.parent_path();
  return name.starts_with(latest_path(folder).filename().string() + ".") ||
         name.starts_with(zero_to_fp32_script_path(folder).filename().string() + ".");
}

/// Of processes that were killed: half-filled and half-removed folders, a `latest` or a script without its
/// name.
void remove_leftovers(const path& folder) {
  std::vector<path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (is_leftover(entry.path())) found.push_back(entry.path());
  }
  for (const path& leftover : found) {
    const bool is_folder = std::filesystem::is_directory(leftover, error);
    const StagingLock lock = is_folder ? StagingLock(leftover) : StagingLock();
    if (!is_folder || lock.is_held()) remove_folder(leftover);
  }
}

}  // namespace

StagingLock::StagingLock(const path& folder)
    : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (handle_ < 0 || ::flock(handle_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(std::exchange(handle_, -1));
}

StagingLock::~StagingLock() {
  if (handle_ >= 0) ::close(handle_);
}

StagingLock::StagingLock(StagingLock&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}

StagingLock& StagingLock::operator=(StagingLock&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

std::string staging_tag(const std::string& tag) { return beside(tag, kSaving); }

StagingLock begin_tag(const path& dir, const std::string& tag) {
  const path staging = dir / staging_tag(tag);
  make_folders(staging.parent_path());
  remove_leftovers(staging.parent_path());
  remove_folder(staging);
  make_folders(staging);
  return StagingLock(staging);
}

void remove_unlisted(const path& dir, const std::string& tag, const Manifest& manifest) {
  std::vector<path> unlisted;
  for (const auto& entry : std::filesystem::directory_iterator(dir / staging_tag(tag))) {
    if (!manifest.sums_of(entry.path())) unlisted.push_back(entry.path());
  }
  for (const path& entry : unlisted) remove_folder(entry);
}

void publish_tag(const path& dir, const std::string& tag) {
  const path staging = dir / staging_tag(tag), target = dir / tag, old = dir / beside(tag, ".old");
  if (!std::filesystem::exists(staging)) return;
  sync_folder(staging);
  if (!std::filesystem::exists(target)) {
    rename_folder(staging, target);
    sync_folder(target.parent_path());
    return remove_folder(old);  // of a crash between the two renames below
  }
  if (exchange(staging, target)) {
    sync_folder(target.parent_path());
    return remove_folder(staging);  // the older folder by now
  }
  remove_folder(old);
  rename_folder(target, old);
  rename_folder(staging, target);
  sync_folder(target.parent_path());
  remove_folder(old);
}

void recover_tag(const path& dir, const std::string& tag) {
  const path target = dir / tag, old = dir / beside(tag, ".old");
  if (!std::filesystem::exists(old)) return;
  if (std::filesystem::exists(target)) return remove_folder(old);
  // Another machine that shares the file system may be doing the same.
  if (::rename(old.c_str(), target.c_str()) != 0 && !std::filesystem::exists(target))
    raise<IoError>(kTagFolderWhere, "cannot rename ", old, " to ", target, ": ", std::strerror(errno));
  sync_folder(target.parent_path());
}

void prune_tags(const path& dir, const std::string& tag, int64_t keep_last, const std::string& also_kept) {
  const path newest = dir / tag, folder = newest.parent_path();
  remove_leftovers(folder);
  int64_t kept = 1;
  for (const std::string& other : find_complete_tags(folder)) {
    const path target = folder / other;
    if (target == newest || ++kept <= keep_last || target == dir / also_kept) continue;
    // Under another name first, durably: what is half removed is no tag.
    const path removed = folder / beside(other, kRemoved);
    remove_folder(removed);
    rename_folder(target, removed);
    sync_folder(folder);
    remove_folder(removed);
  }
}

}  // namespace deepspeed::checkpoint
